//! Files of other formats, by their first bytes: what they are, and what to do.

/// Formats with a signature: where it stands, the bytes, what the file is.
const SIGNATURES: [(usize, &[u8], &str); 15] = [
    (
        0,
        b"PAR1",
        "a Parquet file; write it as CSV, for example with pandas: DataFrame.to_csv",
    ),
    (
        0,
        b"\x89HDF\r\n\x1a\n",
        "an HDF5 file; write its arrays with numpy.savez",
    ),
    (0, b"ARROW1", "an Arrow file; write it as CSV"),
    (0, b"FEA1", "a Feather file; write it as CSV"),
    (
        0,
        b"\xd0\xcf\x11\xe0",
        "a document of an older Office program; save the sheet as CSV UTF-8",
    ),
    (
        0,
        b"SQLite format 3",
        "a database of SQLite; write the table as CSV",
    ),
    (
        0,
        b"MATLAB 5.0",
        "a MATLAB file; write its arrays with numpy.savez",
    ),
    (
        0,
        b"BZh",
        "compressed by bzip2; unpack it with bunzip2, or compress it with gzip",
    ),
    (
        0,
        b"\xfd7zXZ",
        "compressed by xz; unpack it with unxz, or compress it with gzip",
    ),
    (
        0,
        b"\x28\xb5\x2f\xfd",
        "compressed by zstd; unpack it with unzstd, or compress it with gzip",
    ),
    (0, b"7z\xbc\xaf", "a 7z archive; unpack it"),
    (
        0,
        b"\x1f\x9d",
        "compressed by compress (.Z); unpack it with gunzip",
    ),
    (
        0,
        b"%PDF",
        "a PDF document; features are read from CSV or .npz files",
    ),
    (257, b"ustar", "a tar archive; unpack it"),
    (
        0,
        b"RDX",
        "an R file; write the table with write.csv(row.names = FALSE)",
    ),
];

/// What a file is that is neither `.npz`, gzip nor text.
fn of_binary(start: &[u8]) -> Option<&'static str> {
    let signature = SIGNATURES.iter().find(|(at, bytes, _)| {
        start
            .get(*at..)
            .is_some_and(|start| start.starts_with(bytes))
    });
    if let Some((_, _, what)) = signature {
        return Some(what);
    }
    let is_pickle = matches!(start, [0x80, 2..=5, ..]);
    is_pickle.then_some("a pickle; write arrays with numpy.savez, a table with DataFrame.to_csv")
}

/// What a text is that is not CSV in UTF-8.
pub(crate) fn of_text(start: &[u8]) -> Option<String> {
    if let Some(what) = of_binary(start) {
        return Some(format!("it is {what}"));
    }
    let utf16 = "line 1: the text is UTF-16; save the file as UTF-8";
    if start.starts_with(&[0xff, 0xfe]) || start.starts_with(&[0xfe, 0xff]) {
        return Some(utf16.into());
    }
    let head = &start[..start.len().min(1 << 12)];
    let zeros = |first: usize| {
        head.iter()
            .skip(first)
            .step_by(2)
            .filter(|byte| **byte == 0)
            .count()
    };
    let all = zeros(0) + zeros(1);
    if zeros(0).max(zeros(1)) * 5 > head.len() * 2 && zeros(0).min(zeros(1)) * 10 < all {
        return Some(utf16.into());
    }
    let is_strange = |byte: &&u8| **byte < 0x20 && !matches!(byte, b'\t' | b'\n' | b'\r' | 0x0c);
    if head.iter().filter(is_strange).count() * 10 > head.len() {
        return Some("it is neither an .npz file nor text; features are read from these".into());
    }
    let text = start.trim_ascii_start();
    let begins = |word: &str| {
        let word = word.as_bytes();
        text.len() >= word.len() && text[..word.len()].eq_ignore_ascii_case(word)
    };
    let what = if begins("<!doctype html") || begins("<html") || begins("<head") {
        "a web page; was it the download's error page?"
    } else if begins("<?xml") {
        "XML; write the table as CSV"
    } else if begins("{") || begins("[{") || begins("[[") {
        "JSON; write the table as CSV"
    } else if begins("@relation") {
        "an ARFF file; write the table as CSV"
    } else if is_libsvm(text) {
        "a file in the format of libsvm; write all columns as CSV"
    } else {
        return None;
    };
    Some(format!("it is {what}"))
}

/// Whether a text begins with a label and pairs `index:value`.
fn is_libsvm(text: &[u8]) -> bool {
    let line = text.split(|byte| *byte == b'\n').next().unwrap_or_default();
    let line = String::from_utf8_lossy(&line[..line.len().min(200)]);
    let mut fields = line.split_ascii_whitespace();
    let is_number = |text: &str| text.parse::<f64>().is_ok();
    let mut pairs = fields.by_ref().skip(1).take(2).peekable();
    let are_pairs = pairs.peek().is_some()
        && pairs.all(|field| {
            let pair = field.split_once(':');
            pair.is_some_and(|(index, value)| index.parse::<u32>().is_ok() && is_number(value))
        });
    are_pairs && line.split_ascii_whitespace().next().is_some_and(is_number)
}

/// What an archive is that is no `.npz` file, by the names in it.
pub(crate) fn of_archive(names: &[String]) -> Option<String> {
    let has = |wanted: &str| names.iter().any(|name| name == wanted);
    let what = if has("[Content_Types].xml") {
        "a document of an Office program; save the sheet as CSV UTF-8"
    } else if has("content.xml") {
        "a document of LibreOffice; save the sheet as CSV in UTF-8"
    } else if names.iter().any(|name| name.ends_with("data.pkl")) {
        "a file of PyTorch; write arrays with numpy.savez"
    } else if ["indices", "indptr", "data"]
        .iter()
        .all(|name| has(&format!("{name}.npy")))
    {
        "a sparse matrix of SciPy; write it with numpy.savez(FILE, features=matrix.toarray(), \
         labels=…)"
    } else if names
        .iter()
        .any(|name| name.to_ascii_lowercase().ends_with(".csv"))
    {
        "an archive with a CSV file in it; unpack it"
    } else {
        return None;
    };
    Some(format!("it is {what}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn formats_are_named() {
        let utf16: Vec<u8> = "a,b,label\n1,2,0\n"
            .encode_utf16()
            .flat_map(u16::to_le_bytes)
            .collect();
        for (start, expected) in [
            (&b"PAR1\x15\x04"[..], "Parquet"),
            (b"\x89HDF\r\n\x1a\n\0\0", "HDF5"),
            (b"\x80\x04\x95\x1f", "pickle"),
            (b"BZh91AY", "bzip2"),
            (b"\xd0\xcf\x11\xe0\xa1", "Office"),
            (b"{\"a\": [1, 2]}", "JSON"),
            (b"[[1, 2], [3, 4]]", "JSON"),
            (b"\n<!DOCTYPE html><html>", "web page"),
            (b"@RELATION iris\n", "ARFF"),
            (b"1 1:0.5 2:-3e2\n", "libsvm"),
            (&utf16, "UTF-16"),
            (b"\xff\xfea\0,\0b\0", "UTF-16"),
            (&[0, 1, 2, 3, 4, 5, 6, 7], "neither"),
        ] {
            let what = of_text(start).unwrap_or_default();
            assert!(what.contains(expected), "{start:?}: {what}");
        }
        for text in [
            "a,b,label\n1,2,0\n",
            "1 2 0\n3 4 1\n",
            "a b label\n",
            "",
            "x",
        ] {
            assert_eq!(of_text(text.as_bytes()), None, "{text}");
        }
    }
}
