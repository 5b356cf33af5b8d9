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
	var special C.plumb_tokenizer_info
	var text *C.int32_t
	var count C.int64_t
	must(C.plumb_runtime_create(C.PLUMB_ABI_VERSION, nil, &runtime, &err))
	must(C.plumb_run_open(runtime, C.CString(os.Args[1]), 0, &model, &tokenizer, nil, &err))
	special.struct_size = C.sizeof_plumb_tokenizer_info
	must(C.plumb_tokenizer_get_info(tokenizer, &special, &err))
	must(C.plumb_tokenizer_encode(tokenizer, C.CString(os.Args[2]), C.size_t(len(os.Args[2])), &text, &count, &err))
	ids := append([]C.int32_t{}, unsafe.Slice(special.prefix, special.prefix_count)...)
	ids = append(ids, unsafe.Slice(text, count)...)
	n := C.int64_t(len(ids))
	must(C.plumb_session_create(model, nil, &session, &err))
	must(C.plumb_session_feed(session, 0, unsafe.SliceData(ids), n, &err))
	must(C.plumb_decoder_create(tokenizer, unsafe.SliceData(ids), n, &decoder, &err))
	options := (*C.plumb_sample_options)(C.calloc(1, C.sizeof_plumb_sample_options))
	options.struct_size = C.sizeof_plumb_sample_options
	options.end_tokens, options.end_token_count = special.end_tokens, special.end_token_count
	fmt.Print(os.Args[2])
	must(C.plumb_session_generate(session, 0, options, C.plumb_token_fn(C.print), unsafe.Pointer(decoder), &err))
	fmt.Println()
}
