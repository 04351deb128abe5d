//! Whether the rows of several clients have the same columns, in the same order.
//!
//! Rows in another order of features give wrong results and no error. Clients do not see each
//! other's columns, so a server compares digests of their names (NET-35 in `docs/spec/network.md`).

use sha2::{Digest, Sha256};

/// The digest of these names, in order. Columns without names have none.
pub fn digest(names: &[String]) -> Option<[u8; 32]> {
    if names.is_empty() {
        return None;
    }
    let mut digest = Sha256::new_with_prefix(b"undertone/v1/columns");
    for name in names {
        digest.update((name.len() as u64).to_le_bytes());
        digest.update(name);
    }
    Some(digest.finalize().into())
}

/// The clients whose columns are not those of most others, and why they are refused. Where two
/// digests are as frequent, the first one counts. Columns without a digest fit to any. Each client
/// has the name that the reason gives it.
pub fn strangers<T, N: AsRef<str>>(
    clients: impl IntoIterator<Item = (T, N, Option<[u8; 32]>)>,
) -> Option<(Vec<T>, String)> {
    let mut groups: Vec<([u8; 32], Vec<T>, Vec<N>)> = Vec::new();
    for (client, name, digest) in clients {
        let Some(digest) = digest else { continue };
        let at = groups.iter().position(|(other, ..)| *other == digest);
        let at = at.unwrap_or_else(|| {
            groups.push((digest, Vec::new(), Vec::new()));
            groups.len() - 1
        });
        groups[at].1.push(client);
        groups[at].2.push(name);
    }
    // The first of the largest.
    let largest = groups.iter().map(|(_, clients, _)| clients.len()).max()?;
    let most = groups
        .iter()
        .position(|(_, clients, _)| clients.len() == largest)?;
    let (_, _, names) = groups.remove(most);
    if groups.is_empty() {
        return None;
    }
    let names: Vec<&str> = names.iter().map(AsRef::as_ref).collect();
    let why = format!(
        "the names of its columns, or their order, are not those of {}; all clients need the same \
         features in the same order",
        names.join(", ")
    );
    let odd = groups.into_iter().flat_map(|(_, clients, _)| clients);
    Some((odd.collect(), why))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(names: &[&str]) -> Option<[u8; 32]> {
        let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        digest(&names)
    }

    #[test]
    fn a_digest_is_of_names_in_order() {
        assert_eq!(of(&[]), None);
        assert_ne!(of(&["a", "b"]), of(&["b", "a"]));
        assert_ne!(of(&["ab", "c"]), of(&["a", "bc"]));
        let expected = "ecb5dbbc3005e958";
        let digest = of(&["age", "größe"]).unwrap();
        let hex: String = digest[..8]
            .iter()
            .map(|byte| format!("{byte:02x}"))
            .collect();
        assert_eq!(hex, expected);
    }

    #[test]
    fn most_clients_decide() {
        for (columns, odd, most) in [
            (
                [&["a", "b"][..], &["a", "b"], &["b", "a"], &[]],
                vec![2],
                "0, 1;",
            ),
            (
                [&["b", "a"], &["a", "b"], &[], &["a", "b"]],
                vec![0],
                "1, 3;",
            ),
            ([&["b", "a"], &["a", "b"], &["a"], &[]], vec![1, 2], "0;"),
            ([&["a"], &[], &["a"], &[]], vec![], ""),
        ] {
            let clients = columns.iter().enumerate();
            let clients = clients.map(|(at, names)| (at, at.to_string(), of(names)));
            let found = strangers(clients).unwrap_or_default();
            assert_eq!(found.0, odd);
            assert!(found.1.contains(most), "{}", found.1);
        }
    }
}
