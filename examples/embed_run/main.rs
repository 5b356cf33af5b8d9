// SPDX-License-Identifier: Apache-2.0
// Continues a text with a run of `plumb train` or `plumb import`: embed_run RUN TEXT
//   rustc main.rs -o embed_run $(pkg-config --libs plumb)
//     -C link-arg=-Wl,-rpath,$(pkg-config --variable=libdir plumb)
use std::{ffi::CStr, ffi::CString, mem::size_of, os::raw::c_char, os::raw::c_void, ptr::null, ptr::null_mut};
const ABI_VERSION: u32 = 3; // of the plumb.h that the declarations below are from
type Handle = *mut c_void;
type Out<'a> = &'a mut Handle;
type Token = extern "C" fn(Handle, i32) -> i32;
#[repr(C)]
struct SampleOptions { size: u32, max_tokens: i64, top_k: i64, vocabulary: i64, temperature: f64, top_p: f64,
                       seed: u64, index: u64, drawn: i64, end_tokens: *const i32, end_token_count: i64 }
#[repr(C)]
struct TokenizerInfo { size: u32, begin: i32, end: i32, vocab_size: i64, prefix: *const i32, prefix_count: i64,
                       end_tokens: *const i32, end_token_count: i64 }
extern "C" {
    fn plumb_error_message(error: Handle) -> *const c_char;
    fn plumb_runtime_create(abi_version: u32, options: Handle, runtime: Out, error: Out) -> i32;
    fn plumb_run_open(runtime: Handle, path: *const c_char, flags: u32, model: Out, tokenizer: Out, step: *mut i64,
                      error: Out) -> i32;
    fn plumb_tokenizer_get_info(t: Handle, info: &mut TokenizerInfo, error: Out) -> i32;
    fn plumb_tokenizer_encode(t: Handle, text: *const u8, size: usize, ids: &mut *mut i32, count: &mut i64,
                              error: Out) -> i32;
    fn plumb_decoder_create(tokenizer: Handle, prompt: *const i32, n: i64, decoder: Out, error: Out) -> i32;
    fn plumb_decoder_next(decoder: Handle, ids: *const i32, n: i64, text: &mut *const c_char, size: Handle,
                          error: Out) -> i32;
    fn plumb_session_create(model: Handle, options: Handle, session: Out, error: Out) -> i32;
    fn plumb_session_feed(s: Handle, sequence: i32, ids: *const i32, n: i64, error: Out) -> i32;
    fn plumb_session_generate(session: Handle, sequence: i32, o: &SampleOptions, token: Token, user: Handle,
                              error: Out) -> i32;
}

fn must(call: impl FnOnce(Out) -> i32) {
    let mut error = null_mut();
    if call(&mut error) != 0 {
        eprintln!("{}", unsafe { CStr::from_ptr(plumb_error_message(error)) }.to_string_lossy());
        std::process::exit(1);
    }
}
extern "C" fn print(decoder: Handle, token: i32) -> i32 {
    let mut text = null();
    must(|e| unsafe { plumb_decoder_next(decoder, &token, 1, &mut text, null_mut(), e) });
    print!("{}", unsafe { CStr::from_ptr(text) }.to_string_lossy());
    0
}
unsafe fn tokens(ids: *const i32, count: i64) -> &'static [i32] {
    if count == 0 { &[] } else { std::slice::from_raw_parts(ids, count as usize) }
}

fn main() {
    let words: Vec<String> = std::env::args().collect();
    if words.len() != 3 {
        eprintln!("usage: embed_run RUN TEXT");
        std::process::exit(2);
    }
    let path = CString::new(words[1].as_str()).unwrap();
    let (mut runtime, mut model, mut tokenizer) = (null_mut(), null_mut(), null_mut());
    let (mut session, mut decoder) = (null_mut(), null_mut());
    unsafe {
        must(|e| plumb_runtime_create(ABI_VERSION, null_mut(), &mut runtime, e));
        must(|e| plumb_run_open(runtime, path.as_ptr(), 0, &mut model, &mut tokenizer, null_mut(), e));
        let mut special = TokenizerInfo { size: size_of::<TokenizerInfo>() as u32, begin: 0, end: 0, vocab_size: 0,
                                          prefix: null(), prefix_count: 0, end_tokens: null(), end_token_count: 0 };
        must(|e| plumb_tokenizer_get_info(tokenizer, &mut special, e));
        let (text, mut encoded, mut count) = (&words[2], null_mut(), 0);
        must(|e| plumb_tokenizer_encode(tokenizer, text.as_ptr(), text.len(), &mut encoded, &mut count, e));
        let ids = [tokens(special.prefix, special.prefix_count), tokens(encoded, count)].concat();
        must(|e| plumb_session_create(model, null_mut(), &mut session, e));
        must(|e| plumb_session_feed(session, 0, ids.as_ptr(), ids.len() as i64, e));
        must(|e| plumb_decoder_create(tokenizer, ids.as_ptr(), ids.len() as i64, &mut decoder, e));
        let options = SampleOptions { size: size_of::<SampleOptions>() as u32, max_tokens: 0, top_k: 0,
                                      vocabulary: 0, temperature: 0.0, top_p: 1.0, seed: 0, index: 0, drawn: 0,
                                      end_tokens: special.end_tokens,
                                      end_token_count: special.end_token_count };
        print!("{}", text);
        must(|e| plumb_session_generate(session, 0, &options, print, decoder, e));
        println!();
    }
}
