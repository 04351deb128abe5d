//! The fuzz targets pass on their seeds, on all inputs that fuzzers have found, and on some random
//! bytes.

use undertone::kernel::Prg;
use undertone_tests::fuzz::TARGETS;
use undertone_tests::root;

fn held(folder: &str, name: &str) -> Vec<Vec<u8>> {
    let folder = root("fuzz").join(folder).join(name);
    let Ok(files) = std::fs::read_dir(folder) else {
        return Vec::new();
    };
    files
        .map(|file| std::fs::read(file.unwrap().path()).unwrap())
        .collect()
}

#[test]
fn what_fuzzers_found_is_mended() {
    let mut count = 0;
    for (name, body) in TARGETS {
        for bytes in held("regressions", name) {
            body(&bytes);
            count += 1;
        }
    }
    assert!(count > 0, "fuzz/regressions");
}

#[test]
fn seeds_and_what_becomes_of_them_do_no_harm() {
    let try_seeds = |name: &str, body: fn(&[u8])| {
        let seeds = held("seeds", name);
        assert!(!seeds.is_empty(), "fuzz/seeds/{name}");
        let mut prg = Prg::new(&[1; 32]);
        for mut bytes in seeds {
            body(&bytes);
            let at = prg.next_u64() as usize % bytes.len().max(1);
            bytes.truncate(at);
            body(&bytes);
            bytes.extend(prg.next_u64().to_le_bytes());
            body(&bytes);
        }
    };
    std::thread::scope(|scope| {
        for (name, body) in TARGETS {
            scope.spawn(move || try_seeds(name, body));
        }
    });
}

#[test]
fn every_target_can_be_built_and_none_is_forgotten() {
    let manifest = std::fs::read_to_string(root("fuzz/Cargo.toml")).unwrap();
    let declared = manifest.matches("[[bin]]").count();
    assert_eq!(declared, TARGETS.len());
    for (name, _) in TARGETS {
        let source = root(&format!("fuzz/fuzz_targets/{name}.rs"));
        let source = std::fs::read_to_string(source).unwrap();
        assert!(
            source.contains(&format!("run(\"{name}\", bytes)")),
            "{name}"
        );
    }
}
