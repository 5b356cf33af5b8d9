// SPDX-License-Identifier: Apache-2.0
// A host program in Rust, without crates: declares the functions of plumb.h that it calls, trains 20
// steps, and samples.
//   rustc main.rs -o embed_rust $(pkg-config --libs plumb)
use std::{ffi::CStr, mem::size_of, os::raw::c_char, os::raw::c_void, ptr::null, ptr::null_mut};
const ABI_VERSION: u32 = 3; // of the plumb.h that the declarations below are from
type Handle = *mut c_void;
#[repr(C)]
struct TrainerOptions { size: u32, draw_weights: i32, ranks: i32, recipe: *const u8 }
#[repr(C)]
struct SampleOptions { size: u32 } // fields beyond `size` are 0: temperature 0 takes the likeliest token
type Token = extern "C" fn(Handle, i32) -> i32;
type Out<'a> = &'a mut Handle;
extern "C" {
    fn plumb_error_message(error: Handle) -> *const c_char;
    fn plumb_runtime_create(abi_version: u32, options: Handle, runtime: Out, error: Out) -> i32;
    fn plumb_spec_from_text(text: *const u8, name: Handle, spec: Out, error: Out) -> i32;
    fn plumb_model_create(runtime: Handle, spec: Handle, model: Out, error: Out) -> i32;
    fn plumb_model_init(model: Handle, seed: u64, error: Out) -> i32;
    fn plumb_trainer_create(model: Handle, o: &TrainerOptions, trainer: Out, error: Out) -> i32;
    fn plumb_trainer_step(trainer: Handle, inputs: *const i32, targets: *const i32, n: i64,
                          info: Handle, error: Out) -> i32;
    fn plumb_session_create(model: Handle, options: Handle, session: Out, error: Out) -> i32;
    fn plumb_session_feed(s: Handle, sequence: i32, ids: *const i32, n: i64, error: Out) -> i32;
    fn plumb_session_generate(session: Handle, sequence: i32, o: &SampleOptions, token: Token,
                              user: Handle, error: Out) -> i32;
    fn plumb_tokenizer_create(kind: i32, text: *const u8, size: usize, begin_end: i32,
                              tokenizer: Out, error: Out) -> i32;
    fn plumb_decoder_create(tokenizer: Handle, prompt: *const i32, n: i64, decoder: Out,
                            error: Out) -> i32;
    fn plumb_decoder_next(decoder: Handle, ids: *const i32, n: i64, text: &mut *const c_char,
                          size: Handle, error: Out) -> i32;
}

fn must(call: impl FnOnce(Out) -> i32) {
    let mut error = null_mut();
    if call(&mut error) != 0 {
        panic!("{}", unsafe { CStr::from_ptr(plumb_error_message(error)) }.to_string_lossy());
    }
}
extern "C" fn print(decoder: Handle, token: i32) -> i32 {
    let mut text = null();
    must(|e| unsafe { plumb_decoder_next(decoder, &token, 1, &mut text, null_mut(), e) });
    print!("{}", unsafe { CStr::from_ptr(text) }.to_string_lossy());
    0
}

fn main() {
    let text = "n_layer: 1 n_head: 2 d_model: 16 context_length: 8 vocab_size: 10
                block { placement: \"pre\" norm: \"rms_norm\" }\0";
    let recipe = "batch_size: 1 learning_rate: 0.03\0";
    let (mut runtime, mut spec, mut model) = (null_mut(), null_mut(), null_mut());
    let (mut trainer, mut session) = (null_mut(), null_mut());
    let (mut tokenizer, mut decoder) = (null_mut(), null_mut());
    let digits: Vec<i32> = (0..9).collect(); // the text: one row of inputs and targets
    unsafe {
        must(|e| plumb_runtime_create(ABI_VERSION, null_mut(), &mut runtime, e));
        must(|e| plumb_spec_from_text(text.as_ptr(), null_mut(), &mut spec, e));
        must(|e| plumb_model_create(runtime, spec, &mut model, e));
        must(|e| plumb_model_init(model, 1, e));
        let options = TrainerOptions { size: size_of::<TrainerOptions>() as u32, draw_weights: 0, ranks: 0,
                                       recipe: recipe.as_ptr() };
        must(|e| plumb_trainer_create(model, &options, &mut trainer, e));
        let (inputs, targets) = (digits.as_ptr(), digits[1..].as_ptr());
        for _ in 0..20 {
            must(|e| plumb_trainer_step(trainer, inputs, targets, 8, null_mut(), e));
        }
        must(|e| plumb_session_create(model, null_mut(), &mut session, e));
        must(|e| plumb_session_feed(session, 0, digits.as_ptr(), 4, e));
        must(|e| plumb_tokenizer_create(0, "0123456789".as_ptr(), 10, 0, &mut tokenizer, e));
        must(|e| plumb_decoder_create(tokenizer, digits.as_ptr(), 4, &mut decoder, e));
        print!("0123, and then ");
        let greedy = SampleOptions { size: size_of::<SampleOptions>() as u32 };
        must(|e| plumb_session_generate(session, 0, &greedy, print, decoder, e));
        println!();
    }
}
