// SPDX-License-Identifier: Apache-2.0
// Describes a model of one layer, teaches it to count, and prints what it continues, token by token.
//   cargo run --example train_and_sample
use plumb::{Model, Next, Runtime, SampleOptions, Session, Spec, Tokenizer, Trainer};

const MODEL: &str = "n_layer: 1 n_head: 2 d_model: 16 context_length: 8
                     block { placement: \"pre\" norm: \"rms_norm\" }";

fn main() -> plumb::Result<()> {
    let runtime = Runtime::new(0)?;
    let tokenizer = Tokenizer::characters("0123456789")?;
    let mut spec = Spec::from_text(MODEL, "train_and_sample.rs")?;
    spec.set("vocab_size", tokenizer.vocab_size())?;
    let mut model = Model::new(&runtime, &spec)?;
    model.init(1)?;

    let digits = tokenizer.encode("012345678")?;
    let mut trainer = Trainer::new(&mut model, "max_steps: 20 batch_size: 1 learning_rate: 0.03")?;
    trainer.run(
        |_step, inputs, targets| {
            inputs.copy_from_slice(&digits[..8]);
            targets.copy_from_slice(&digits[1..]);
            Next::GoOn
        },
        |info| {
            if info.step % 10 == 0 {
                println!("step {} loss {:.2}", info.step, info.loss);
            }
            Next::GoOn
        },
    )?;

    let mut session = Session::new(&model, 1)?;
    let prompt = &digits[..4];
    session.feed(0, prompt)?;
    let mut decoder = tokenizer.decoder(prompt)?;
    print!("{}, and then ", tokenizer.decode(prompt)?);
    let likeliest = SampleOptions { temperature: 0.0, ..SampleOptions::default() };
    session.generate(0, &likeliest, |token| {
        print!("{}", decoder.next(&[token]).expect("a token of the model"));
        Next::GoOn
    })?;
    println!();
    Ok(())
}
