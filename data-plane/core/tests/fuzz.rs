//! The fuzz targets on their seeds, on mutations of them, and on plain noise: what the coverage-guided runs under `fuzz/`
//! do for hours, every test run does for a moment, so that neither rots.

#![allow(clippy::unwrap_used, clippy::panic)] // a target fails by a panic

#[path = "fuzz/seeds.rs"]
mod seeds;
#[path = "fuzz/targets.rs"]
mod targets;

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

/// Mutations of each target's seeds.
const MUTATIONS: usize = 400;

#[test]
fn part2_targets_hold_on_their_seeds() {
    for (name, target, seeds) in seeds::all() {
        assert!(!seeds.is_empty(), "{name}");
        // What bodies are planted in is a hundred bodies each time.
        let every = if name == "planted" { 8 } else { 1 };
        seeds.iter().step_by(every).for_each(|seed| target(seed));
    }
}

#[test]
fn part2_targets_hold_on_mutated_seeds() {
    let mut rng = StdRng::seed_from_u64(7);
    for (name, target, seeds) in seeds::all() {
        let rounds = if name == "planted" { MUTATIONS / 20 } else { MUTATIONS };
        for _ in 0..rounds {
            let mut data = seeds[rng.random_range(0..seeds.len())].clone();
            for _ in 0..rng.random_range(1..8) {
                mutate(&mut data, &seeds, &mut rng);
            }
            target(&data);
        }
    }
}

#[test]
fn part2_targets_hold_on_noise() {
    let mut rng = StdRng::seed_from_u64(11);
    for (name, target, _) in seeds::all() {
        for _ in 0..if name == "planted" { 10 } else { MUTATIONS } {
            let length = rng.random_range(0..400);
            let data: Vec<u8> = (0..length).map(|_| rng.random()).collect();
            target(&data);
        }
    }
}

fn mutate(data: &mut Vec<u8>, seeds: &[Vec<u8>], rng: &mut StdRng) {
    let at = rng.random_range(0..=data.len());
    match rng.random_range(0..6) {
        0 => data.truncate(at),
        1 => data.insert(at, *b"\"\\{}[],:\n\r\0 0eE-.".get(rng.random_range(0..17)).unwrap_or(&0)),
        2 => {
            let end = (at + rng.random_range(0..20)).min(data.len());
            data.drain(at..end);
        }
        3 => {
            let other = &seeds[rng.random_range(0..seeds.len())];
            let from = rng.random_range(0..=other.len());
            data.splice(at..at, other[from..].iter().take(60).copied());
        }
        4 => {
            let end = (at + rng.random_range(0..40)).min(data.len());
            let again = data[at..end].repeat(2);
            data.splice(at..at, again);
        }
        _ => {
            if let Some(byte) = data.get_mut(at) {
                *byte = rng.random();
            }
        }
    }
}

/// Writes the seeds where `fuzz/run` looks for them.
#[test]
#[ignore = "only before fuzzing: fuzz/run calls it"]
fn write_seeds() {
    for (name, _, seeds) in seeds::all() {
        let directory = format!("{}/fuzz/seeds/{name}", env!("CARGO_MANIFEST_DIR"));
        std::fs::create_dir_all(&directory).unwrap();
        for (at, seed) in seeds.iter().enumerate() {
            std::fs::write(format!("{directory}/{at:05}"), seed).unwrap();
        }
    }
}

/// Everything that fuzzing collected and found, on this build.
#[test]
#[ignore = "only after fuzzing: its files are not kept"]
fn replay_what_fuzzing_found() {
    for (name, target, _) in seeds::all() {
        for kind in ["corpus", "artifacts"] {
            let directory = format!("{}/fuzz/{kind}/{name}", env!("CARGO_MANIFEST_DIR"));
            let files: Vec<_> = std::fs::read_dir(&directory).into_iter().flatten().flatten().collect();
            println!("{directory}: {}", files.len());
            files.iter().for_each(|file| target(&std::fs::read(file.path()).unwrap()));
        }
    }
}
