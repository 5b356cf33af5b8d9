// SPDX-License-Identifier: Apache-2.0
//! The declarations of plumb.h that the wrappers use. A struct may end before that of plumb.h,
//! because it begins with its size.
use std::os::raw::{c_char, c_void};

pub const ABI_VERSION: u32 = 3; // of the plumb.h that these declarations are from
pub type Handle = *mut c_void;
pub type Out<'a> = &'a mut Handle;
pub type BatchFn = unsafe extern "C" fn(*mut c_void, i64, *mut i32, *mut i32, i64) -> i32;
pub type StepFn = unsafe extern "C" fn(*mut c_void, *const StepInfo) -> i32;
pub type TokenFn = unsafe extern "C" fn(*mut c_void, i32) -> i32;

#[repr(C)]
pub struct RuntimeOptions {
    pub struct_size: u32, pub flags: u32, pub threads: i32,
}

/// Dimensions and sizes of a model.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct ModelInfo {
    pub(crate) struct_size: u32, pub n_layer: i64, pub d_model: i64, pub n_head: i64, pub vocab_size: i64,
    pub context_length: i64, pub parameters: i64, pub weight_bytes: i64, pub cache_bytes: i64,
    pub bidirectional: i32, pub token_types: i32,
}

#[repr(C)]
pub struct TokenizerInfo {
    pub struct_size: u32, pub begin: i32, pub end: i32, pub vocab_size: i64, pub prefix: *const i32,
    pub prefix_count: i64, pub end_tokens: *const i32, pub end_token_count: i64,
}

#[repr(C)]
pub struct TrainerOptions {
    pub struct_size: u32, pub draw_weights: i32, pub ranks: i32, pub recipe: *const c_char,
}

/// Results of a step.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct StepInfo {
    pub(crate) struct_size: u32, pub step: i64, pub tokens: i64, pub loss: f64, pub gradient_norm: f64,
    pub learning_rate: f64, pub seconds: f64,
}

#[repr(C)]
pub struct SessionOptions {
    pub struct_size: u32, pub sequences: i32, pub weights: i32,
}

#[repr(C)]
pub struct SampleOptions {
    pub struct_size: u32, pub max_tokens: i64, pub top_k: i64, pub vocabulary: i64, pub temperature: f64,
    pub top_p: f64, pub seed: u64, pub index: u64, pub drawn: i64, pub end_tokens: *const i32,
    pub end_token_count: i64,
}

extern "C" {
    pub fn plumb_free(memory: *mut c_void);
    pub fn plumb_error_message(error: Handle) -> *const c_char;
    pub fn plumb_error_free(error: Handle);
    pub fn plumb_runtime_create(abi: u32, options: *const RuntimeOptions, runtime: Out, error: Out) -> i32;
    pub fn plumb_runtime_free(runtime: Handle);
    pub fn plumb_spec_from_text(text: *const c_char, name: *const c_char, spec: Out, error: Out) -> i32;
    pub fn plumb_spec_from_file(path: *const c_char, spec: Out, error: Out) -> i32;
    pub fn plumb_spec_set(spec: Handle, field: *const c_char, value: *const c_char, error: Out) -> i32;
    pub fn plumb_spec_free(spec: Handle);
    pub fn plumb_model_create(runtime: Handle, spec: Handle, model: Out, error: Out) -> i32;
    pub fn plumb_model_free(model: Handle);
    pub fn plumb_model_get_info(model: Handle, info: *mut ModelInfo, error: Out) -> i32;
    pub fn plumb_model_init(model: Handle, seed: u64, error: Out) -> i32;
    pub fn plumb_model_load(model: Handle, path: *const c_char, left: *mut *mut c_char, error: Out) -> i32;
    pub fn plumb_model_save(model: Handle, path: *const c_char, tensors: *const c_char, error: Out) -> i32;
    pub fn plumb_run_open(runtime: Handle, path: *const c_char, flags: u32, model: Out, tokenizer: Out,
                          step: *mut i64, error: Out) -> i32;
    pub fn plumb_tokenizer_create(kind: i32, text: *const c_char, size: usize, with_begin_end: i32,
                                  tokenizer: Out, error: Out) -> i32;
    pub fn plumb_tokenizer_get_info(tokenizer: Handle, info: *mut TokenizerInfo, error: Out) -> i32;
    pub fn plumb_tokenizer_encode(tokenizer: Handle, text: *const c_char, size: usize, tokens: &mut *mut i32,
                                  count: &mut i64, error: Out) -> i32;
    pub fn plumb_tokenizer_decode(tokenizer: Handle, tokens: *const i32, count: i64, text: &mut *mut c_char,
                                  size: &mut usize, error: Out) -> i32;
    pub fn plumb_tokenizer_free(tokenizer: Handle);
    pub fn plumb_decoder_create(tokenizer: Handle, prompt: *const i32, count: i64, decoder: Out, error: Out) -> i32;
    pub fn plumb_decoder_next(decoder: Handle, tokens: *const i32, count: i64, text: &mut *const c_char,
                              size: *mut usize, error: Out) -> i32;
    pub fn plumb_decoder_finish(decoder: Handle, text: &mut *const c_char, size: *mut usize, error: Out) -> i32;
    pub fn plumb_decoder_free(decoder: Handle);
    pub fn plumb_trainer_create(model: Handle, options: *const TrainerOptions, trainer: Out, error: Out) -> i32;
    pub fn plumb_trainer_free(trainer: Handle);
    pub fn plumb_trainer_step_tokens(trainer: Handle) -> i64;
    pub fn plumb_trainer_steps(trainer: Handle) -> i64;
    pub fn plumb_trainer_step(trainer: Handle, inputs: *const i32, targets: *const i32, n: i64,
                              info: *mut StepInfo, error: Out) -> i32;
    pub fn plumb_trainer_run(trainer: Handle, batch: BatchFn, step: StepFn, user: *mut c_void, error: Out) -> i32;
    pub fn plumb_trainer_save(trainer: Handle, path: *const c_char, error: Out) -> i32;
    pub fn plumb_trainer_load(trainer: Handle, path: *const c_char, error: Out) -> i32;
    pub fn plumb_session_create(model: Handle, options: *const SessionOptions, session: Out, error: Out) -> i32;
    pub fn plumb_session_free(session: Handle);
    pub fn plumb_session_feed(session: Handle, sequence: i32, tokens: *const i32, count: i64, error: Out) -> i32;
    pub fn plumb_session_generate(session: Handle, sequence: i32, options: *const SampleOptions, token: TokenFn,
                                  user: *mut c_void, error: Out) -> i32;
}
