//! Replays the kept corpus on a stable compiler: what the fuzzer has found once stays mended.

use std::path::Path;

use queue_fuzz_targets::TARGETS;

#[test]
fn every_input_of_the_corpus_passes() {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("../corpus");
    for (name, run) in TARGETS {
        let folder = corpus.join(name);
        let mut inputs: Vec<_> = std::fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path()).collect();
        inputs.sort();
        assert!(inputs.len() >= 5, "{} inputs in {}", inputs.len(), folder.display());
        for input in inputs {
            let bytes = std::fs::read(&input).unwrap();
            // The name of the file stands before the panic, if there is one.
            println!("{name}: {}", input.display());
            run(&bytes);
        }
    }
}
