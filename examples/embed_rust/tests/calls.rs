// SPDX-License-Identifier: Apache-2.0
// Errors, callbacks that stop or panic, and the files of a model.
use plumb::{Model, Next, Runtime, SampleOptions, Session, Spec, Tokenizer, Trainer};

const MODEL: &str = "n_layer: 1 n_head: 2 d_model: 8 context_length: 8 vocab_size: 5
                     block { placement: \"pre\" norm: \"rms_norm\" }";

fn model(seed: u64) -> Model {
    let spec = Spec::from_text(MODEL, "model").unwrap();
    let mut model = Model::new(&Runtime::new(1).unwrap(), &spec).unwrap();
    model.init(seed).unwrap();
    model
}

fn likeliest(model: &Model) -> Vec<i32> {
    let mut session = Session::new(model, 1).unwrap();
    session.feed(0, &[1, 2]).unwrap();
    let mut tokens = Vec::new();
    let options = SampleOptions { temperature: 0.0, ..SampleOptions::default() };
    session.generate(0, &options, |token| { tokens.push(token); Next::GoOn }).unwrap();
    tokens
}

#[test]
fn errors_have_a_code_and_a_message() {
    let error = Spec::from_text("n_hed: 2", "model.pbtxt").err().unwrap();
    assert_eq!(error.code, plumb::INVALID_ARGUMENT);
    assert!(error.message.starts_with("model.pbtxt:1:1: "), "{}", error);
    assert!(Spec::from_text("a\0b", "model").is_err());
}

#[test]
fn handles_are_freed_in_any_order_and_keep_what_they_need() {
    assert_eq!(model(1).info().unwrap().n_layer, 1);
    assert_eq!(likeliest(&model(1)).len(), 7); // until the context is full, and one that is not fed
    assert_eq!(likeliest(&model(1)), likeliest(&model(1)));
}

#[test]
fn callbacks_stop_and_panic() {
    let mut model = model(1);
    let mut trainer = Trainer::new(&mut model, "batch_size: 1 max_steps: 9").unwrap();
    let fill = |_step: i64, inputs: &mut [i32], targets: &mut [i32]| {
        inputs.fill(1);
        targets.fill(2);
        Next::GoOn
    };
    let stop = |info: &plumb::StepInfo| if info.step == 3 { Next::Stop } else { Next::GoOn };
    assert_eq!(trainer.run(fill, stop).err().unwrap().code, plumb::CANCELLED);
    assert_eq!(trainer.steps(), 3);
    let panics = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| trainer.run(fill, |_| panic!("in a step"))));
    assert_eq!(*panics.err().unwrap().downcast_ref::<&str>().unwrap(), "in a step");
    assert_eq!(trainer.steps(), 4);
    assert!(trainer.step(&[1; 8], &[2; 8]).unwrap().loss > 0.0);
    assert!(trainer.step(&[1], &[2]).is_err());
}

#[test]
fn weights_are_saved_and_loaded() {
    let path = std::env::temp_dir().join(format!("plumb-rust-{}", std::process::id()));
    let path = path.to_str().unwrap();
    let (first, mut second) = (model(1), model(2));
    assert_ne!(likeliest(&first), likeliest(&second));
    first.save(path).unwrap();
    second.load(path).unwrap();
    std::fs::remove_file(path).unwrap();
    assert_eq!(likeliest(&first), likeliest(&second));
    assert!(second.load("/not/there").is_err());
}

#[test]
fn text_becomes_tokens_and_text_again() {
    let tokenizer = Tokenizer::characters("abcé").unwrap();
    let tokens = tokenizer.encode("bécé").unwrap();
    assert_eq!(tokenizer.vocab_size(), 4);
    assert_eq!(tokenizer.decode(&tokens).unwrap(), "bécé");
    assert!(tokenizer.encode("z").is_err());
    assert!(tokenizer.prefix().is_empty());
    let mut decoder = tokenizer.decoder(&[]).unwrap();
    let text: String = tokens.iter().map(|&token| decoder.next(&[token]).unwrap()).collect();
    assert_eq!(text + &decoder.finish().unwrap(), "bécé");
    let with_nul = Tokenizer::characters("a\0c").unwrap();
    let mut decoder = with_nul.decoder(&[]).unwrap();
    assert_eq!(decoder.next(&with_nul.encode("a\0c").unwrap()).unwrap(), "a\0c");
}
