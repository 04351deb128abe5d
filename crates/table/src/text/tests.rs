//! Files as people, spreadsheets and other programs write them.

use super::*;

fn read(mut reader: impl Read) -> Result<Dataset, DataError> {
    super::read(&mut reader, Kind::Features, &[])
}

#[test]
fn names_and_label_column() {
    for text in [
        "a,label,b\n1,0,2\n3,,4\n",
        "a,b,c\n1,2,0\n3,4,-1\n",
        "1,2,0\n3, 4,\n",
        "a;label;b\r\n1;0;2\r\n3;NA;4\r\n",
        "a\tb\tlabel\n1\t2\t0.0\n3\t4\t?\n",
        "\u{feff}a,b,label\n1,2,0\n3,4,\n",
        "\"a,x;\",b,label\n1,2,0\n3,4,\n",
    ] {
        let data = read(text.as_bytes()).unwrap();
        let Rows::Features(features) = data.rows else {
            panic!("CSV holds features");
        };
        assert_eq!(features.values(), [1.0, 2.0, 3.0, 4.0], "{text}");
        assert_eq!(data.labels, [Some(0), None], "{text}");
        assert!(data.class_names.is_empty());
    }
}

#[test]
fn what_is_written_is_read() {
    let text = "age,weight,label\n30,70.5,\"ill, very\"\n40,80,\n50,60,well\n";
    let data = read(text.as_bytes()).unwrap();
    let Rows::Features(features) = &data.rows else {
        panic!("CSV holds features");
    };
    let labelling = data.labelling(2).unwrap();
    let labelling = labelling.with_names(data.class_names.clone()).unwrap();
    let mut out = Vec::new();
    write(&mut out, features, &labelling, &data.columns).unwrap();
    assert_eq!(String::from_utf8(out).unwrap(), text);
}

#[test]
fn names_of_columns_and_classes() {
    let data = read("age,label,weight\n30,ill,70\n40,,80\n50,well,60\n".as_bytes()).unwrap();
    assert_eq!(data.columns, ["age", "weight"]);
    assert_eq!(data.class_names, ["ill", "well"]);
    assert_eq!(data.labels, [Some(0), None, Some(1)]);
}

#[test]
fn errors_say_where() {
    for (text, expected) in [
        ("", "empty"),
        ("a,b\n", "no rows"),
        ("1\n", "1 column"),
        ("1,2,0\n1,x,0\n", "line 2, column 2: 'x' is not a number"),
        ("a,b,label\n1,x,0\n", "line 2, column 2 (b): 'x' is not"),
        ("a,b,label\n1,,0\n", "line 2, column 2 (b) is empty"),
        ("a;b;label\n1;2,5;0\n", "decimals with a point"),
        ("1,2,0\n1,2,1.5\n", "line 2, column 3 has the label 1.5"),
        ("1,2,0\n1,nan,1\n", "line 2, column 2: 'nan' is no number"),
        (
            "label,a,b\n0,1,nan\n",
            "line 2, column 3 (b): 'nan' is no number",
        ),
        ("1,2,0\n0,0,1\n", "line 2: all features are 0"),
        (
            "1,2,0\n1,2\n",
            "line 2 has 2 fields, the lines before have 3",
        ),
        ("1,2,70000\n", "line 1, column 3 has the label 70000"),
        ("NA,2,0\n1,2,1\n", "line 1, column 1: 'NA' is no number"),
        (",a,label\n0,1,1\n", "column 1 has no name"),
    ] {
        let message = read(text.as_bytes()).unwrap_err().to_string();
        assert!(message.contains(expected), "'{message}' lacks '{expected}'");
    }
}

#[test]
fn other_encodings_get_a_hint() {
    for (text, expected) in [
        (
            &b"a,b,label\n1,2,gr\xfcn\n"[..],
            "line 2: the text is not UTF-8",
        ),
        (&b"\xff\xfea\0,\0b\0"[..], "UTF-16"),
    ] {
        let message = read(text).unwrap_err().to_string();
        assert!(message.contains(expected), "'{message}' lacks '{expected}'");
    }
}

/// Rows, labels and names of the columns.
fn parts(text: &str) -> (Vec<f64>, Vec<Option<u16>>, Vec<String>) {
    let data = read(text.as_bytes()).unwrap_or_else(|error| panic!("{text}: {error}"));
    let Rows::Features(features) = data.rows else {
        panic!("CSV holds features");
    };
    (features.values().to_vec(), data.labels, data.columns)
}

fn message(text: &str) -> String {
    read(text.as_bytes()).unwrap_err().to_string()
}

/// The first line holds names if it has a `label`, or if it does not fit the line below.
#[test]
fn header_or_data() {
    let labels = vec![Some(0), Some(1)];
    for (head, columns) in [
        ("0,1,label", vec!["0", "1"]),
        ("400,401,Label", vec!["400", "401"]),
        ("400,401,class", vec!["400", "401"]),
        ("a,401,class", vec!["a", "401"]),
        ("a,1e3,b", vec!["a", "1e3"]),
        ("# a,b,label", vec!["a", "b"]),
        ("\"0\",\"1\",\"label\"", vec!["0", "1"]),
    ] {
        let (values, found, names) = parts(&format!("{head}\n1.5,2,0\n3,4,1\n"));
        assert_eq!(
            (values, found),
            (vec![1.5, 2.0, 3.0, 4.0], labels.clone()),
            "{head}"
        );
        assert_eq!(names, columns, "{head}");
    }
    let (values, _, names) = parts("label,0,1\n0,1.5,2\n1,3,4\n");
    assert_eq!(
        (values, names),
        (vec![1.5, 2.0, 3.0, 4.0], vec!["0".into(), "1".into()])
    );
    // Labels are names, and only the labels tell that the first line is one of names.
    let (values, found, _) = parts("400,401,class\n1,2,ill\n3,4,well\n5,6,ill\n");
    assert_eq!((values.len(), found), (6, vec![Some(0), Some(1), Some(0)]));
    // Rows.
    for text in [
        "1,2,ill\n3,4,well\n",
        "1,2,class\n3,4,y\n5,6,class\n",
        "true,2,0\n0,3,1\n",
    ] {
        assert_eq!(parts(text).0.len(), 2 * text.lines().count(), "{text}");
    }
    for (text, expected) in [
        ("0,1,2,3\n1.5,2,0,1\n", "line 1 numbers the columns"),
        (",0,1,2\n0,1.5,2,0\n", "line 1 numbers the columns"),
        (
            ",0,1,label\n0,1.5,2,0\n",
            "column 1 has no name; if it numbers the rows",
        ),
        ("1,2,l\n1,2,0\n", "line 1 has a text in the last column"),
        ("a,b,label\n1,2,0\na,b,label\n", "line 3 repeats the names"),
        (
            "# exported on Monday\na,b,label\n1,2,0\n",
            "line 1: it is a comment",
        ),
        ("a,a,label\n1,2,0\n", "columns 1 and 2 have the name 'a'"),
        (
            "label,a,Label\n1,2,0\n",
            "columns 1 and 3 have the name 'Label'",
        ),
    ] {
        let message = message(text);
        assert!(message.contains(expected), "{text}: {message}");
    }
}

#[test]
fn columns_that_may_hold_the_labels_get_a_hint() {
    for text in [
        "target,a,d\n0,1.5,1\n1,2.5,0\n",
        "target,a,d\n0,1.5,-0.25\n1,2.5,0.5\n",
        "a,Class,d\n1.5,2,1\n1.5,1,0\n",
        "a,y,d\n1.5,ill,1\n1.5,well,0\n",
    ] {
        let message = message(text);
        assert!(message.contains("call it label"), "{text}: {message}");
    }
    // A coordinate is no class, and the last column may have any name.
    assert_eq!(parts("x,y,kind\n1,2.5,0\n1,0.5,1\n").1, [Some(0), Some(1)]);
    assert_eq!(
        parts("a,b,target\n1,2.5,0\n1,0.5,1\n").1,
        [Some(0), Some(1)]
    );
    assert_eq!(
        parts("target,b,label\n1,2,0\n1,0,1\n").1,
        [Some(0), Some(1)]
    );
}

/// What spreadsheets and the usual tools write.
#[test]
fn separators_blank_lines_and_spare_separators() {
    for text in [
        "sep=;\na;b;label\n1;2;0\n3;4;1\n",
        "\u{feff}sep=,\r\na,b,label\r\n1,2,0\r\n3,4,1\r\n",
        "a,b,label,\n1,2,0,\n3,4,1,\n",
        "a,b,label,\n1,2,0\n3,4,1\n",
        "a,b,label\n1,2,0,\n3,4,1,\n",
        "a,b,label\n1,2,0\n3,4,1\n,,\n,,\n",
        "a,b,label\n\n1,2,0\n3,4,1\n\n",
        "a|b|label\n1|2|0\n3|4|1\n",
        "a b label\n1 2 0\n3 4 1\n",
        "1.0 2.0 0.0\n3.0 4.0 1.0\n",
        "a,b,label\r1,2,0\r3,4,1\r",
    ] {
        let (values, labels, _) = parts(text);
        assert_eq!(values, [1.0, 2.0, 3.0, 4.0], "{text:?}");
        assert_eq!(labels, [Some(0), Some(1)], "{text:?}");
    }
    for (text, expected) in [
        ("sep=;\na;b;label\n1;x;0\n", "line 3, column 2 (b)"),
        ("a,b,label\n,,\n3,4,1\n", "line 2 is empty"),
        (
            "a,b,label,\n1,2,0,7\n",
            "line 2 has 4 fields, the line before has 3 names",
        ),
        (
            "a,b,label\nr1,1,2,0\n",
            "if the first column numbers the rows",
        ),
        ("a,b,label\n1,2,\"ill\n3,4,well\n", "several lines"),
        ("a,b,label\n1,2, \"ill\"\n3,4,well\n", "has quotes in it"),
    ] {
        let message = message(text);
        assert!(message.contains(expected), "{text:?}: {message}");
    }
}

/// Only a file that ends early gets the question whether it is complete.
#[test]
fn only_cut_files_are_asked_whether_they_are_complete() {
    let cut = message("a,b,label\n1,2,0\n3,");
    assert!(
        cut.contains("line 3 has 2 fields") && cut.contains("complete?"),
        "{cut}"
    );
    for text in [
        "a,b,label\n1,2,0\n3,\n",
        "a,b,label\n1,2\n3,4,1",
        "a,b,label\n1,2,0,5",
    ] {
        let message = message(text);
        assert!(!message.contains("complete?"), "{text:?}: {message}");
    }
}

#[test]
fn one_line_says_where_labels_are_and_what_means_that_one_is_unknown() {
    let about = |text: &str| read(text.as_bytes()).unwrap().describe_labels();
    assert_eq!(about("a,label\n1,0\n"), "labels: column 2 (label)\n");
    assert_eq!(about("1,0\n2,1\n"), "labels: column 2\n");
    assert_eq!(
        about("a,label\n1,0\n2,\n3,None\n"),
        "labels: column 2 (label); an empty field and 'None' mean an unknown label\n"
    );
}

proptest::proptest! {
    #![proptest_config(proptest::test_runner::Config::with_cases(2000))]

    /// Any text is read or refused, and what is read has a label for each row.
    #[test]
    fn any_text_is_read_or_refused(
        text in "[0-9a-cl ,;|\t\"#.\\-\n\r=\u{e9}]{0,60}", head in 0usize..4,
    ) {
        let head = ["", "sep=;\n", "a,b,label\n", "0,1,target\n"][head];
        for kind in [Kind::Features, Kind::Table] {
            if let Ok(data) = super::read(&mut format!("{head}{text}").as_bytes(), kind, &[]) {
                proptest::prop_assert_eq!(data.labels.len(), data.rows.len());
                proptest::prop_assert_eq!(data.origin.lines.len(), data.rows.len());
            }
        }
    }
}
