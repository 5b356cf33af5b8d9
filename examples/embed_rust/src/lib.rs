// SPDX-License-Identifier: Apache-2.0
//! Safe wrappers of plumb.h for describing, training and sampling transformers. plumb.h documents
//! what each function does; a call that fails returns its error. Handles free themselves, keep what
//! they need alive, and stay on the thread that made them.
use std::any::Any;
use std::ffi::{CStr, CString};
use std::fmt;
use std::mem::size_of;
use std::os::raw::{c_char, c_void};
use std::panic::{catch_unwind, resume_unwind, AssertUnwindSafe};
use std::ptr::{null, null_mut};

mod ffi;
use ffi::{Handle, Out};

/// An error: a `plumb_status`, and the message, which begins with a location if there is one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Error {
    pub code: i32,
    pub message: String,
}
pub const CANCELLED: i32 = 1;
pub const INVALID_ARGUMENT: i32 = 3;

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}
impl std::error::Error for Error {}
pub type Result<T> = std::result::Result<T, Error>;

/// Decision of a callback: to continue the call, or to end it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    GoOn,
    Stop,
}

// --- Calls ---------------------------------------------------------------------------------------

fn check(call: impl FnOnce(Out) -> i32) -> Result<()> {
    let mut error = null_mut();
    let code = call(&mut error);
    if code == 0 {
        return Ok(());
    }
    let message = unsafe { text_of(ffi::plumb_error_message(error)) };
    unsafe { ffi::plumb_error_free(error) };
    Err(Error { code, message })
}

fn make(call: impl FnOnce(Out, Out) -> i32) -> Result<Handle> {
    let mut made = null_mut();
    check(|error| call(&mut made, error))?;
    Ok(made)
}

fn c_text(text: &str) -> Result<CString> {
    CString::new(text).map_err(|_| Error {
        code: INVALID_ARGUMENT,
        message: "the text contains 0".to_string(),
    })
}

unsafe fn text_of(text: *const c_char) -> String {
    if text.is_null() { String::new() } else { CStr::from_ptr(text).to_string_lossy().into_owned() }
}

unsafe fn slice_of<'a, T>(data: *const T, count: i64) -> &'a [T] {
    if count == 0 { &[] } else { std::slice::from_raw_parts(data, count as usize) }
}

unsafe fn text_with_size(text: *const c_char, size: usize) -> String {
    String::from_utf8_lossy(slice_of(text as *const u8, size as i64)).into_owned()
}

/// Callbacks of one call, and a panic in one of them: no panic may unwind through C.
struct Callbacks<F> {
    functions: F,
    panic: Option<Box<dyn Any + Send>>,
}

impl<F> Callbacks<F> {
    fn user(&mut self) -> *mut c_void {
        self as *mut Self as *mut c_void
    }
    /// Runs a callback's body; returns what C expects.
    fn run(&mut self, body: impl FnOnce(&mut F) -> Next) -> i32 {
        match catch_unwind(AssertUnwindSafe(|| body(&mut self.functions))) {
            Ok(next) => (next == Next::Stop) as i32,
            Err(panic) => {
                self.panic = Some(panic);
                1
            }
        }
    }
    /// Returns the result of the call, or continues the panic.
    fn finish<T>(self, result: Result<T>) -> Result<T> {
        match self.panic {
            Some(panic) => resume_unwind(panic),
            None => result,
        }
    }
}

macro_rules! handle {
    ($(#[$doc:meta])* $name:ident, $free:ident) => {
        $(#[$doc])*
        pub struct $name(Handle);
        impl Drop for $name {
            fn drop(&mut self) {
                unsafe { ffi::$free(self.0) }
            }
        }
    };
}
handle!(/// Norms, placements and threads that models share.
    Runtime, plumb_runtime_free);
handle!(/// A model's description.
    Spec, plumb_spec_free);
handle!(/// A model and its weights.
    Model, plumb_model_free);
handle!(/// Converts text to ids and back.
    Tokenizer, plumb_tokenizer_free);
handle!(/// Converts ids that arrive one by one to text.
    Decoder, plumb_decoder_free);
handle!(/// Trains a model's weights. A model has at most one.
    Trainer, plumb_trainer_free);
handle!(/// Sequences that grow token by token.
    Session, plumb_session_free);

// --- Models --------------------------------------------------------------------------------------

impl Runtime {
    /// Creates a runtime whose calls use at most this many threads; 0: all processors.
    pub fn new(threads: i32) -> Result<Runtime> {
        let options = ffi::RuntimeOptions { struct_size: size_of::<ffi::RuntimeOptions>() as u32, flags: 0, threads };
        make(|made, error| unsafe { ffi::plumb_runtime_create(ffi::ABI_VERSION, &options, made, error) }).map(Runtime)
    }
}

impl Spec {
    /// Reads a description from a text, for which `name` stands in messages.
    pub fn from_text(text: &str, name: &str) -> Result<Spec> {
        let (text, name) = (c_text(text)?, c_text(name)?);
        make(|made, error| unsafe { ffi::plumb_spec_from_text(text.as_ptr(), name.as_ptr(), made, error) }).map(Spec)
    }
    pub fn from_file(path: &str) -> Result<Spec> {
        let path = c_text(path)?;
        make(|made, error| unsafe { ffi::plumb_spec_from_file(path.as_ptr(), made, error) }).map(Spec)
    }
    /// Sets a field from text: `spec.set("n_layer", 8)`.
    pub fn set(&mut self, field: &str, value: impl fmt::Display) -> Result<()> {
        let (field, value) = (c_text(field)?, c_text(&value.to_string())?);
        check(|error| unsafe { ffi::plumb_spec_set(self.0, field.as_ptr(), value.as_ptr(), error) })
    }
}

pub use ffi::{ModelInfo, StepInfo};

impl Model {
    /// Creates a model without weights.
    pub fn new(runtime: &Runtime, spec: &Spec) -> Result<Model> {
        make(|made, error| unsafe { ffi::plumb_model_create(runtime.0, spec.0, made, error) }).map(Model)
    }
    /// Opens a run of `plumb train` or `plumb import`, or a checkpoint.
    pub fn open_run(runtime: &Runtime, path: &str) -> Result<(Model, Tokenizer)> {
        let (path, mut tokenizer) = (c_text(path)?, null_mut());
        let model = make(|made, error| unsafe {
            ffi::plumb_run_open(runtime.0, path.as_ptr(), 0, made, &mut tokenizer, null_mut(), error)
        })?;
        Ok((Model(model), Tokenizer(tokenizer)))
    }
    /// Draws the weights.
    pub fn init(&mut self, seed: u64) -> Result<()> {
        check(|error| unsafe { ffi::plumb_model_init(self.0, seed, error) })
    }
    pub fn load(&mut self, path: &str) -> Result<()> {
        let path = c_text(path)?;
        check(|error| unsafe { ffi::plumb_model_load(self.0, path.as_ptr(), null_mut(), error) })
    }
    pub fn save(&self, path: &str) -> Result<()> {
        let path = c_text(path)?;
        check(|error| unsafe { ffi::plumb_model_save(self.0, path.as_ptr(), null(), error) })
    }
    pub fn info(&self) -> Result<ModelInfo> {
        let mut info = ModelInfo { struct_size: size_of::<ModelInfo>() as u32, ..Default::default() };
        check(|error| unsafe { ffi::plumb_model_get_info(self.0, &mut info, error) })?;
        Ok(info)
    }
}

// --- Tokens --------------------------------------------------------------------------------------

impl Tokenizer {
    /// Creates a tokenizer with a token for each character in a text.
    pub fn characters(text: &str) -> Result<Tokenizer> {
        make(|made, error| unsafe {
            ffi::plumb_tokenizer_create(0, text.as_ptr() as *const c_char, text.len(), 0, made, error)
        })
        .map(Tokenizer)
    }
    fn info(&self) -> ffi::TokenizerInfo {
        let mut info: ffi::TokenizerInfo = unsafe { std::mem::zeroed() };
        info.struct_size = size_of::<ffi::TokenizerInfo>() as u32;
        check(|error| unsafe { ffi::plumb_tokenizer_get_info(self.0, &mut info, error) }).expect("cannot fail");
        info
    }
    pub fn vocab_size(&self) -> i64 {
        self.info().vocab_size
    }
    /// Tokens to put before those of `encode` in a prompt.
    pub fn prefix(&self) -> &[i32] {
        let info = self.info();
        unsafe { slice_of(info.prefix, info.prefix_count) }
    }
    /// Tokens that end a generated text.
    pub fn end_tokens(&self) -> &[i32] {
        let info = self.info();
        unsafe { slice_of(info.end_tokens, info.end_token_count) }
    }
    pub fn encode(&self, text: &str) -> Result<Vec<i32>> {
        let (mut tokens, mut count) = (null_mut(), 0);
        check(|error| unsafe {
            ffi::plumb_tokenizer_encode(self.0, text.as_ptr() as *const c_char, text.len(), &mut tokens, &mut count, error)
        })?;
        let copy = unsafe { slice_of(tokens, count) }.to_vec();
        unsafe { ffi::plumb_free(tokens as *mut c_void) };
        Ok(copy)
    }
    /// Converts ids to text; bytes that are not UTF-8 are replaced.
    pub fn decode(&self, tokens: &[i32]) -> Result<String> {
        let (mut text, mut size) = (null_mut(), 0);
        check(|error| unsafe {
            ffi::plumb_tokenizer_decode(self.0, tokens.as_ptr(), tokens.len() as i64, &mut text, &mut size, error)
        })?;
        let copy = unsafe { text_with_size(text, size) };
        unsafe { ffi::plumb_free(text as *mut c_void) };
        Ok(copy)
    }
    /// Returns a decoder of the tokens after those of a prompt.
    pub fn decoder(&self, prompt: &[i32]) -> Result<Decoder> {
        make(|made, error| unsafe {
            ffi::plumb_decoder_create(self.0, prompt.as_ptr(), prompt.len() as i64, made, error)
        })
        .map(Decoder)
    }
}

impl Decoder {
    /// Returns the text that these tokens complete, "" if more must come.
    pub fn next(&mut self, tokens: &[i32]) -> Result<String> {
        let (mut text, mut size) = (null(), 0);
        check(|error| unsafe {
            ffi::plumb_decoder_next(self.0, tokens.as_ptr(), tokens.len() as i64, &mut text, &mut size, error)
        })?;
        Ok(unsafe { text_with_size(text, size) })
    }
    /// Returns the text that was held back.
    pub fn finish(&mut self) -> Result<String> {
        let (mut text, mut size) = (null(), 0);
        check(|error| unsafe { ffi::plumb_decoder_finish(self.0, &mut text, &mut size, error) })?;
        Ok(unsafe { text_with_size(text, size) })
    }
}

// --- Training ------------------------------------------------------------------------------------

impl Trainer {
    /// Creates a trainer with a recipe (plumb.v1.Train in text format).
    pub fn new(model: &mut Model, recipe: &str) -> Result<Trainer> {
        let recipe = c_text(recipe)?;
        let size = size_of::<ffi::TrainerOptions>() as u32;
        let options = ffi::TrainerOptions { struct_size: size, draw_weights: 0, ranks: 0, recipe: recipe.as_ptr() };
        make(|made, error| unsafe { ffi::plumb_trainer_create(model.0, &options, made, error) }).map(Trainer)
    }
    /// Number of ids in a step.
    pub fn step_tokens(&self) -> usize {
        unsafe { ffi::plumb_trainer_step_tokens(self.0) as usize }
    }
    /// Number of completed steps.
    pub fn steps(&self) -> i64 {
        unsafe { ffi::plumb_trainer_steps(self.0) }
    }
    /// Does one step on `step_tokens()` ids and their targets, -1 for none.
    pub fn step(&mut self, inputs: &[i32], targets: &[i32]) -> Result<StepInfo> {
        assert_eq!(inputs.len(), targets.len(), "each input has a target");
        let mut info = StepInfo { struct_size: size_of::<StepInfo>() as u32, ..Default::default() };
        check(|error| unsafe {
            ffi::plumb_trainer_step(self.0, inputs.as_ptr(), targets.as_ptr(), inputs.len() as i64, &mut info, error)
        })?;
        Ok(info)
    }
    /// Does steps until the recipe's max_steps. `batch(step, inputs, targets)` fills a step;
    /// `after` receives its results.
    pub fn run(
        &mut self,
        batch: impl FnMut(i64, &mut [i32], &mut [i32]) -> Next,
        after: impl FnMut(&StepInfo) -> Next,
    ) -> Result<()> {
        type Pair<B, A> = Callbacks<(B, A)>;
        unsafe extern "C" fn fill<B: FnMut(i64, &mut [i32], &mut [i32]) -> Next, A>(
            user: *mut c_void, step: i64, inputs: *mut i32, targets: *mut i32, n: i64,
        ) -> i32 {
            let inputs = std::slice::from_raw_parts_mut(inputs, n as usize);
            let targets = std::slice::from_raw_parts_mut(targets, n as usize);
            (*(user as *mut Pair<B, A>)).run(|both| (both.0)(step, inputs, targets))
        }
        unsafe extern "C" fn tell<B, A: FnMut(&StepInfo) -> Next>(user: *mut c_void, info: *const StepInfo) -> i32 {
            (*(user as *mut Pair<B, A>)).run(|both| (both.1)(&*info))
        }
        fn functions<B: FnMut(i64, &mut [i32], &mut [i32]) -> Next, A: FnMut(&StepInfo) -> Next>(
            _: &Pair<B, A>,
        ) -> (ffi::BatchFn, ffi::StepFn) {
            (fill::<B, A>, tell::<B, A>)
        }
        let mut callbacks = Callbacks { functions: (batch, after), panic: None };
        let (fill, tell) = functions(&callbacks);
        let user = callbacks.user();
        let result = check(|error| unsafe { ffi::plumb_trainer_run(self.0, fill, tell, user, error) });
        callbacks.finish(result)
    }
    pub fn save(&self, path: &str) -> Result<()> {
        let path = c_text(path)?;
        check(|error| unsafe { ffi::plumb_trainer_save(self.0, path.as_ptr(), error) })
    }
    pub fn load(&mut self, path: &str) -> Result<()> {
        let path = c_text(path)?;
        check(|error| unsafe { ffi::plumb_trainer_load(self.0, path.as_ptr(), error) })
    }
}

// --- Sampling ------------------------------------------------------------------------------------

/// How `Session::generate` draws. The default draws from the model's distribution until the context
/// is full.
#[derive(Clone, Debug)]
pub struct SampleOptions<'a> {
    pub max_tokens: i64,
    pub top_k: i64,
    /// 0: takes the likeliest token.
    pub temperature: f64,
    pub top_p: f64,
    pub seed: u64,
    /// Tokens that end the text.
    pub end_tokens: &'a [i32],
}
impl Default for SampleOptions<'_> {
    fn default() -> Self {
        SampleOptions { max_tokens: 0, top_k: 0, temperature: 1.0, top_p: 1.0, seed: 0, end_tokens: &[] }
    }
}

impl Session {
    /// Creates a session of 1 to 64 sequences.
    pub fn new(model: &Model, sequences: i32) -> Result<Session> {
        let options = ffi::SessionOptions { struct_size: size_of::<ffi::SessionOptions>() as u32, sequences, weights: 0 };
        make(|made, error| unsafe { ffi::plumb_session_create(model.0, &options, made, error) }).map(Session)
    }
    /// Appends tokens to a sequence.
    pub fn feed(&mut self, sequence: i32, tokens: &[i32]) -> Result<()> {
        check(|error| unsafe {
            ffi::plumb_session_feed(self.0, sequence, tokens.as_ptr(), tokens.len() as i64, error)
        })
    }
    /// Draws tokens after those of a sequence, and passes each to `token`, which may stop.
    pub fn generate(
        &mut self, sequence: i32, options: &SampleOptions, token: impl FnMut(i32) -> Next,
    ) -> Result<()> {
        unsafe extern "C" fn tell<F: FnMut(i32) -> Next>(user: *mut c_void, token: i32) -> i32 {
            (*(user as *mut Callbacks<F>)).run(|function| function(token))
        }
        fn function<F: FnMut(i32) -> Next>(_: &Callbacks<F>) -> ffi::TokenFn {
            tell::<F>
        }
        let SampleOptions { max_tokens, top_k, temperature, top_p, seed, end_tokens } = options.clone();
        let (struct_size, end_token_count) = (size_of::<ffi::SampleOptions>() as u32, end_tokens.len() as i64);
        let options = ffi::SampleOptions {
            struct_size, max_tokens, top_k, vocabulary: 0, temperature, top_p, seed, index: 0, drawn: 0,
            end_tokens: end_tokens.as_ptr(), end_token_count,
        };
        let mut callbacks = Callbacks { functions: token, panic: None };
        let (tell, user) = (function(&callbacks), callbacks.user());
        let result =
            check(|error| unsafe { ffi::plumb_session_generate(self.0, sequence, &options, tell, user, error) });
        callbacks.finish(result)
    }
}
