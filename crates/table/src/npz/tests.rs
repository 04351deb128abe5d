//! Archives as people write them, and broken ones.

use std::io::{Cursor, Write};

use undertone_label::{Features, Labelling};
use zip::write::{SimpleFileOptions, ZipWriter};

use super::*;
use undertone_rounds::arrays::{Arrays, Values};

#[test]
fn what_is_written_is_read() {
    let features = Features::new(2, vec![1.0, 2.0, 0.5, -4.0]).unwrap();
    let labelling = Labelling::new(3, vec![None, Some(1)]).unwrap();
    let mut bytes = Cursor::new(Vec::new());
    write(&mut bytes, &features, &labelling).unwrap();
    let data = read(&mut bytes, Kind::Features, &[]).unwrap();
    assert!(matches!(data.rows, Rows::Features(read) if read == features));
    assert_eq!(data.labels, labelling.labels());
    assert_eq!(data.classes, Some(3));
    let names = ["ill", "unwohl", "gesünder"].map(str::to_owned).to_vec();
    let named = labelling.with_names(names.clone()).unwrap();
    let mut bytes = Cursor::new(Vec::new());
    write(&mut bytes, &features, &named).unwrap();
    let data = read(&mut bytes, Kind::Features, &[]).unwrap();
    assert_eq!(
        (data.labels, data.class_names),
        (named.labels().to_vec(), names)
    );
}

#[test]
fn arrays_that_are_written_are_read() {
    let mut arrays = Arrays::new();
    arrays
        .push("w", vec![2, 2], vec![1.0f32, 2.0, 3.0, 4.0])
        .unwrap();
    arrays.push("b", vec![], vec![0.1f64]).unwrap();
    let mut bytes = Cursor::new(Vec::new());
    write_arrays(&mut bytes, &arrays).unwrap();
    assert_eq!(read_arrays(&mut bytes).unwrap(), arrays);
    // Three dimensions, the first index running fastest.
    let fortran = "{'descr': '<f4', 'fortran_order': True, 'shape': (2, 1, 3), }";
    let fortran = archive(&[("t", raw(fortran, &floats(&[1., 4., 2., 5., 3., 6.])))]);
    let read = read_arrays(&mut Cursor::new(fortran)).unwrap();
    let values = read.get("t").unwrap().to_doubles();
    assert_eq!(values, [1., 2., 3., 4., 5., 6.]);
}

/// One rule for all types: real numbers are taken as they are, or as a float32 that is the same;
/// others are refused by name.
#[test]
fn arrays_are_real_numbers() {
    // 1, -2, the smallest above 0, the largest, infinity.
    let halves = [0x3c00u16, 0xc000, 0x0001, 0x7bff, 0x7c00];
    let exact = [1.0, -2.0, 2f64.powi(-24), 65504.0, f64::INFINITY];
    let little: Vec<u8> = halves.iter().flat_map(|half| half.to_le_bytes()).collect();
    let big: Vec<u8> = halves.iter().flat_map(|half| half.to_be_bytes()).collect();
    for (descr, bytes) in [("<f2", little), (">f2", big)] {
        let bytes = archive(&[("h", array(descr, "(5,)", &bytes))]);
        let read = read_arrays(&mut Cursor::new(bytes)).unwrap();
        let read = read.get("h").unwrap();
        assert!(matches!(read.values(), Values::Single(_)));
        assert_eq!(read.to_doubles(), exact);
    }
    for (descr, len, dtype, then) in [
        ("<i4", 4, "int32", "astype('float32')"),
        ("<i8", 8, "int64", "astype('float32')"),
        (">i2", 2, "int16", "astype('float32')"),
        ("|i1", 1, "int8", "astype('float32')"),
        ("|u1", 1, "uint8", "astype('float32')"),
        ("<u8", 8, "uint64", "astype('float32')"),
        ("|b1", 1, "bool", "astype('float32')"),
        ("<c8", 8, "<c8", "leave it out"),
        ("<U2", 8, "<U2", "leave it out"),
    ] {
        let arrays = [
            ("w", array("<f4", "(1,)", &[0; 4])),
            ("steps", array(descr, "()", &vec![0; len])),
        ];
        let error = read_arrays(&mut Cursor::new(archive(&arrays))).unwrap_err();
        let error = error.to_string();
        assert!(
            error.contains(&format!("array 'steps' is {dtype};")),
            "{error}"
        );
        assert!(error.contains(then), "{error}");
    }
}

fn raw(header: &str, data: &[u8]) -> Vec<u8> {
    let mut out = b"\x93NUMPY\x01\x00".to_vec();
    out.extend((header.len() as u16).to_le_bytes());
    out.extend(header.as_bytes());
    out.extend(data);
    out
}

fn array(descr: &str, shape: &str, data: &[u8]) -> Vec<u8> {
    let header = format!("{{'descr': '{descr}', 'fortran_order': False, 'shape': {shape}, }}");
    raw(&header, data)
}

fn archive(entries: &[(&str, Vec<u8>)]) -> Vec<u8> {
    let mut zip = ZipWriter::new(Cursor::new(Vec::new()));
    for (name, bytes) in entries {
        zip.start_file(format!("{name}.npy"), SimpleFileOptions::default())
            .unwrap();
        zip.write_all(bytes).unwrap();
    }
    zip.finish().unwrap().into_inner()
}

fn floats(values: &[f32]) -> Vec<u8> {
    values
        .iter()
        .flat_map(|value| value.to_le_bytes())
        .collect()
}

fn features(shape: &str, values: &[f32]) -> (&'static str, Vec<u8>) {
    ("features", array("<f4", shape, &floats(values)))
}

fn labels() -> (&'static str, Vec<u8>) {
    ("labels", array("|i1", "(2,)", &[1, 0xff]))
}

fn error(bytes: Vec<u8>, kind: Kind) -> String {
    read(&mut Cursor::new(bytes), kind, &[])
        .unwrap_err()
        .to_string()
}

#[test]
fn rows_and_labels() {
    let c = archive(&[features("(2, 3)", &[1., 2., 3., 4., 5., 6.]), labels()]);
    let fortran = "{'descr': '<f4', 'fortran_order': True, 'shape': (2, 3), }";
    let fortran = ("features", raw(fortran, &floats(&[1., 4., 2., 5., 3., 6.])));
    for bytes in [c, archive(&[fortran, labels()])] {
        let data = read(&mut Cursor::new(bytes), Kind::Features, &[]).unwrap();
        let Rows::Features(features) = data.rows else {
            panic!("features were asked for");
        };
        assert_eq!(features.dim(), 3);
        assert_eq!(features.values(), [1., 2., 3., 4., 5., 6.]);
        assert_eq!(data.labels, [Some(1), None]);
    }
}

#[test]
fn features_of_other_types() {
    let half = [0x00, 0x3c, 0x00, 0xc0]; // 1 and -2
    for features in [
        array("<f2", "(2, 1)", &half),
        array("|i1", "(2, 1)", &[1, 0xfe]),
        array(">i2", "(2, 1)", &[0, 1, 0xff, 0xfe]),
    ] {
        let bytes = archive(&[("features", features), labels()]);
        let data = read(&mut Cursor::new(bytes), Kind::Features, &[]).unwrap();
        assert!(matches!(data.rows, Rows::Features(own) if own.values() == [1.0, -2.0]));
    }
}

#[test]
fn labels_of_other_types() {
    let wide = |text: &str| -> Vec<u8> {
        let codes = text.chars().flat_map(|c| u32::from(c).to_le_bytes());
        codes.collect()
    };
    let names = ["ill\0", "NA\0\0", "well"];
    let unicode: Vec<u8> = names.iter().flat_map(|name| wide(name)).collect();
    let table = ["well", "ill\0", "dead"];
    let table: Vec<u8> = table.iter().flat_map(|name| wide(name)).collect();
    let rows = features("(3, 1)", &[1., 2., 3.]);
    let read = |entries: &[(&str, Vec<u8>)]| {
        let mut all = vec![rows.clone()];
        all.extend_from_slice(entries);
        read(&mut Cursor::new(archive(&all)), Kind::Features, &[]).unwrap()
    };
    for labels in [
        array("<U4", "(3,)", &unicode),
        array("|S4", "(3,)", names.concat().as_bytes()),
    ] {
        let data = read(&[("labels", labels.clone())]);
        assert_eq!(data.labels, [Some(0), None, Some(1)]);
        assert_eq!(data.class_names, ["ill", "well"]);
        let data = read(&[
            ("labels", labels),
            ("classes", array("<U4", "(3,)", &table)),
        ]);
        assert_eq!(data.labels, [Some(1), None, Some(0)]);
        assert_eq!(data.class_names, ["well", "ill", "dead"]);
        assert_eq!(data.classes, Some(3));
    }
    let numbers = array("<f4", "(3,)", &floats(&[1.0, f32::NAN, -1.0]));
    assert_eq!(read(&[("labels", numbers)]).labels, [Some(1), None, None]);
}

/// Numbers are places in the table, unless one of its names is a number.
#[test]
fn numbers_and_tables_of_names() {
    let entries = |labels: &[u8], table: &[u8]| {
        archive(&[
            features("(2, 1)", &[1., 2.]),
            ("labels", array("|i1", "(2,)", labels)),
            ("classes", array("|S1", "(2,)", table)),
        ])
    };
    let labels = |labels, table| {
        let data = read(
            &mut Cursor::new(entries(labels, table)),
            Kind::Features,
            &[],
        )
        .unwrap();
        data.labels
    };
    assert_eq!(labels(&[1, 0], b"ab"), [Some(1), Some(0)]);
    assert_eq!(labels(&[1, 0], b"10"), [Some(0), Some(1)]);
    let message = error(entries(&[1, 2], b"ab"), Kind::Features);
    assert!(message.contains("labels[1] has the label '2'"), "{message}");
    let message = error(entries(&[1, 2], b"10"), Kind::Features);
    assert!(message.contains("labels[1] has the label '2'"), "{message}");
}

#[test]
fn codes_in_numpys_order() {
    let codes = ("codes", array("|u1", "(2, 2)", &[0x80, 0x40, 0x01, 0x00]));
    let bits = ("bits", array("<i8", "()", &10i64.to_le_bytes()));
    let data = read(
        &mut Cursor::new(archive(&[codes, bits, labels()])),
        Kind::Codes,
        &[],
    )
    .unwrap();
    let Rows::Codes(codes) = data.rows else {
        panic!("codes were asked for");
    };
    let set = |row| {
        (0..10)
            .filter(|bit| codes.bits().get(row, *bit))
            .collect::<Vec<_>>()
    };
    assert_eq!(set(0), [0, 9]);
    assert_eq!(set(1), [7]);
}

#[test]
fn errors_say_what_is_wrong() {
    let good = features("(2, 1)", &[1., 2.]);
    let cases = [
        (
            vec![labels()],
            "'features' is missing; the archive holds: labels",
        ),
        (vec![good.clone()], "'labels' is missing"),
        (
            vec![("features", raw(&"{0:".repeat(20), &[])), labels()],
            "not that of an array of plain numbers",
        ),
        (
            vec![
                (
                    "features",
                    raw("{'descr': [('a', '<f8')], 'shape': (2,), }", &[0; 16]),
                ),
                labels(),
            ],
            "record array",
        ),
        (
            vec![("features", array("<M8[s]", "(1, 1)", &[0; 8])), labels()],
            "dates or times",
        ),
        (
            vec![("features", array("|O", "(1, 1)", &[0; 8])), labels()],
            "astype(float)",
        ),
        (
            vec![good.clone(), ("labels", array("|i1", "(2, 1)", &[0, 1]))],
            "labels.ravel()",
        ),
        (
            vec![
                good.clone(),
                (
                    "labels",
                    array("<u8", "(2,)", &[[0; 8], [0xff; 8]].concat()),
                ),
            ],
            "labels[1] has the label 18446744073709551615",
        ),
        (
            vec![("X", good.1.clone()), ("y", labels().1)],
            "numpy.savez(FILE, features=X, labels=y)",
        ),
        (
            ["indices", "indptr", "format", "shape", "data"]
                .map(|name| (name, labels().1))
                .to_vec(),
            "a sparse matrix of SciPy",
        ),
        (vec![features("(2,)", &[1., 2.]), labels()], "2-dimensional"),
        (
            vec![("features", array("<c8", "(1, 1)", &[0; 8])), labels()],
            "an integer or floating type",
        ),
        (
            vec![
                good.clone(),
                ("labels", array("<f4", "(2,)", &floats(&[0., 0.5]))),
            ],
            "labels[1] has the label 0.5",
        ),
        (
            vec![
                good.clone(),
                ("labels", array("|S1", "(2,)", b"ab")),
                ("classes", array("|S1", "(2,)", b"bc")),
            ],
            "'a', which is not among the classes b, c",
        ),
        (
            vec![good.clone(), ("labels", array("|i1", "(2,)", &[0, 0xfe]))],
            "labels[1] has the label -2",
        ),
        (
            vec![features("(2, 1)", &[1., f32::NAN]), labels()],
            "features[1, 0] is NaN",
        ),
        (
            vec![features("(2, 1)", &[1., 0.]), labels()],
            "features[1] is all zeros",
        ),
        (
            vec![features("(3, 1)", &[1., 2.]), labels()],
            "only 8 bytes follow",
        ),
        (
            vec![features("(9000000000, 9000000000)", &[]), labels()],
            "too large",
        ),
        (
            vec![
                ("features", b"\x93NUMPY\x02\0\xff\xff\xff\xff".to_vec()),
                labels(),
            ],
            "too long",
        ),
        (
            vec![("features", b"text".to_vec()), labels()],
            "is the file complete?",
        ),
    ];
    for (entries, expected) in cases {
        let message = error(archive(&entries), Kind::Features);
        assert!(message.contains(expected), "'{message}' lacks '{expected}'");
    }
}

#[test]
fn shapes_are_decimal_numbers() {
    for (shape, expected) in [
        (
            "'shape': (0xFFFFFFFF, 0xFFFFFFFF, 0xFFFF)",
            "not of decimal numbers",
        ),
        ("'sh\\x61pe': (9999999999, 9999999999)", "an escape"),
        ("", "no shape"),
    ] {
        let header = format!("{{'descr': '<f4', 'fortran_order': False, {shape}, }}");
        let bytes = archive(&[("features", raw(&header, &[])), labels()]);
        let message = error(bytes, Kind::Features);
        assert!(message.contains(expected), "'{message}' lacks '{expected}'");
    }
}

#[test]
fn cut_archives_are_refused_everywhere() {
    let whole = archive(&[features("(2, 3)", &[1., 2., 3., 4., 5., 6.]), labels()]);
    for len in 0..whole.len() {
        assert!(
            read(&mut Cursor::new(&whole[..len]), Kind::Features, &[]).is_err(),
            "{len} bytes"
        );
    }
}

#[test]
fn changed_archives_do_not_panic() {
    let whole = archive(&[features("(2, 3)", &[1., 2., 3., 4., 5., 6.]), labels()]);
    for at in 0..whole.len() {
        for change in [1, 0x80, 0xff] {
            let mut bytes = whole.clone();
            bytes[at] ^= change;
            let _ = read(&mut Cursor::new(bytes), Kind::Features, &[]);
        }
    }
}

/// Only files that end early get the question whether they are complete.
#[test]
fn only_cut_archives_are_asked_whether_they_are_complete() {
    let whole = archive(&[features("(2, 1)", &[1., 2.]), labels()]);
    let message = error(whole[..whole.len() - 10].to_vec(), Kind::Features);
    assert!(message.contains("is the file complete?"), "{message}");
    for (features, expected) in [
        (array("|O", "(2, 1)", &[0; 16]), "Python objects"),
        (array("<f4", "(2, 1)", &[0; 12]), "more than 8 bytes follow"),
        (b"text and more text".to_vec(), "not an .npy array"),
    ] {
        let message = error(archive(&[("features", features), labels()]), Kind::Features);
        assert!(message.contains(expected), "{message}");
        assert!(!message.contains("complete?"), "{message}");
    }
}

#[test]
fn booleans_are_numbers_and_as_labels_names() {
    let entries = [
        ("features", array("|b1", "(3, 2)", &[1, 0, 0, 1, 1, 1])),
        ("labels", array("|b1", "(3,)", &[1, 0, 1])),
    ];
    let data = read(&mut Cursor::new(archive(&entries)), Kind::Features, &[]).unwrap();
    let Rows::Features(features) = data.rows else {
        panic!("features were asked for");
    };
    assert_eq!(features.values(), [1., 0., 0., 1., 1., 1.]);
    assert_eq!(data.class_names, ["False", "True"]);
    assert_eq!(data.labels, [Some(1), Some(0), Some(1)]);
}

/// `astype(str)` writes `None` and `nan` for what is missing.
#[test]
fn texts_that_mean_an_unknown_label() {
    let entries = [
        features("(3, 1)", &[1., 2., 3.]),
        ("labels", array("|S4", "(3,)", b"ill\0Nonewell")),
    ];
    let data = read(&mut Cursor::new(archive(&entries)), Kind::Features, &[]).unwrap();
    assert_eq!(data.labels, [Some(0), None, Some(1)]);
    assert_eq!(data.origin.unknown, Some((1, "None".into())));
    let names = ["None", "ill", "well"].map(str::to_owned);
    let data = read(&mut Cursor::new(archive(&entries)), Kind::Features, &names).unwrap();
    assert_eq!(data.labels, [Some(1), Some(0), Some(2)]);
}
