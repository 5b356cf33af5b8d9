// SPDX-License-Identifier: Apache-2.0

// Continues a text with a run of `plumb train` or `plumb import`: embed_run RUN TEXT
//
//	CGO_LDFLAGS=-Wl,-rpath,$(pkg-config --variable=libdir plumb) go build -o embed_run main.go
package main

// #cgo pkg-config: plumb
// #include <plumb.h>
// #include <stdlib.h>
// int32_t print(void* decoder, int32_t token);
import "C"

import (
	"fmt"
	"os"
	"unsafe"
)

var err *C.plumb_error // of the last call that failed

func must(status C.plumb_status) {
	if status != C.PLUMB_OK {
		fmt.Fprintln(os.Stderr, C.GoString(C.plumb_error_message(err)))
		os.Exit(1)
	}
}

//export print
func print(decoder unsafe.Pointer, token C.int32_t) C.int32_t {
	var text *C.char
	must(C.plumb_decoder_next((*C.plumb_decoder)(decoder), &token, 1, &text, nil, &err))
	fmt.Print(C.GoString(text))
	return 0
}

func main() {
	if len(os.Args) != 3 {
		fmt.Fprintln(os.Stderr, "usage: embed_run RUN TEXT")
		os.Exit(2)
	}
	var runtime *C.plumb_runtime
	var model *C.plumb_model
	var tokenizer *C.plumb_tokenizer
	var session *C.plumb_session
	var decoder *C.plumb_decoder
	var prefix, count, ends C.size_t
	ids := (*[1024]C.int32_t)(C.calloc(1040, 4)) // C keeps a pointer to the end tokens, so C owns them
	end := (*C.int32_t)(unsafe.Add(unsafe.Pointer(ids), 4096))
	must(C.plumb_runtime_create(C.PLUMB_ABI_VERSION, nil, &runtime, &err))
	must(C.plumb_run_open(runtime, C.CString(os.Args[1]), 0, &model, &tokenizer, nil, &err))
	must(C.plumb_tokenizer_prefix(tokenizer, &ids[0], 1024, &prefix, &err))
	must(C.plumb_tokenizer_encode(tokenizer, C.CString(os.Args[2]), C.size_t(len(os.Args[2])), &ids[prefix],
		1024-prefix, &count, &err))
	must(C.plumb_tokenizer_end_tokens(tokenizer, end, 16, &ends, &err))
	if prefix+count > 1024 {
		fmt.Fprintln(os.Stderr, "TEXT is too long")
		os.Exit(1)
	}
	must(C.plumb_session_create(model, nil, &session, &err))
	must(C.plumb_session_feed(session, 0, &ids[0], prefix+count, &err))
	must(C.plumb_decoder_create(tokenizer, &ids[0], prefix+count, &decoder, &err))
	options := (*C.plumb_sample_options)(C.calloc(1, C.sizeof_plumb_sample_options))
	options.struct_size = C.sizeof_plumb_sample_options
	options.end_tokens, options.end_token_count = end, ends
	fmt.Print(os.Args[2])
	must(C.plumb_session_generate(session, 0, options, C.plumb_token_fn(C.print), unsafe.Pointer(decoder), &err))
	fmt.Println()
}
