//! The messages of each backend.

use undertone_hamming::Backend;
use undertone_label::{Params, phases};
use undertone_lwe::Params as Class;
use undertone_party::PartyId;
use undertone_party::frame::TILE_BYTES;

use super::{Book, SEAL, SERVER};

/// A client and its number of rows.
type Owner = (PartyId, usize);

/// Number of bits of a distance.
pub(crate) fn width(bits: usize) -> usize {
    (usize::BITS - bits.leading_zeros()) as usize
}

/// The messages that bring the server the distances between rows of different clients. In each
/// cell clients have so many rows; the second number is that of such cells. Without cells there is
/// one, with all rows.
pub(super) fn distances(book: &mut Book<'_>, params: &Params, cells: &[(Vec<usize>, usize)]) {
    let clients = cells.first().map_or(0, |(rows, _)| rows.len());
    if matches!(params.backend, Backend::Clear | Backend::Sketch) {
        for place in 0..clients {
            let rows = cells.iter().map(|(rows, count)| rows[place] * count).sum();
            let link = (PartyId::client(place), SERVER, phases::DISTANCES);
            book.words(link, rows, params.bits.div_ceil(8));
        }
        return;
    }
    for (rows, count) in cells {
        book.times = *count;
        match params.backend {
            Backend::Psm => psm(book, params.bits, &owners(rows)),
            _ => pairs(book, params, &owners(rows)),
        }
    }
    book.times = 1;
    if params.backend == Backend::Psm {
        for place in 0..clients {
            let link = (SERVER, PartyId::client(place), phases::DISTANCES);
            book.many(link, 4 * clients, 2);
        }
    }
}

fn owners(rows: &[usize]) -> Vec<Owner> {
    let clients = (0..rows.len()).map(PartyId::client);
    clients.zip(rows.iter().copied()).collect()
}

/// A run of a backend between pairs of clients.
fn pairs(book: &mut Book<'_>, params: &Params, owners: &[Owner]) {
    if params.backend == Backend::Lwe {
        lwe(book, params.bits, owners);
    } else {
        for (place, first) in owners.iter().enumerate() {
            for second in &owners[place + 1..] {
                if first.1 * second.1 > 0 {
                    pair(book, params, owners.len(), *first, *second);
                }
            }
        }
    }
    for (me, _) in owners {
        book.add((*me, SERVER, phases::DISTANCES), 4 + SEAL);
    }
}

/// The messages of a pair of clients with rows.
fn pair(book: &mut Book<'_>, params: &Params, clients: usize, first: Owner, second: Owner) {
    let (many, few) = if first.1 >= second.1 {
        (first, second)
    } else {
        (second, first)
    };
    match params.backend {
        Backend::Shade => shade(book, params.bits, clients, many, few),
        // With equal numbers of rows, the first client owns the key.
        _ if first.1 == second.1 => phe(book, params, first, second),
        _ => phe(book, params, few, many),
    }
}

fn psm(book: &mut Book<'_>, bits: usize, owners: &[Owner]) {
    let w = width(bits);
    for (me, rows) in owners {
        let up = (*me, SERVER, phases::DISTANCES);
        let tile = (TILE_BYTES - SEAL, SEAL);
        book.tiles(up, *rows, (w * bits).div_ceil(8), tile);
        for (_, columns) in owners.iter().filter(|other| other.0 != *me) {
            for (a, wide) in blocks(*rows) {
                for (b, high) in blocks(*columns) {
                    book.many(up, (w * a * b).div_ceil(8) + SEAL, wide * high);
                }
            }
        }
    }
}

/// The sizes of blocks of `psm`, and how many there are of each.
fn blocks(rows: usize) -> [(usize, usize); 2] {
    const SIDE: usize = 512;
    [
        (SIDE, rows / SIDE),
        (rows % SIDE, usize::from(!rows.is_multiple_of(SIDE))),
    ]
}

/// Whether the first is the evaluator to the second.
fn evaluates(first: Owner, second: Owner) -> bool {
    (first.1, second.0) > (second.1, first.0)
}

/// The rounds of an evaluator: in each the blocks that one masked row answers, with their owners
/// and whether they are the first of their owner. Owners with more rows come first.
fn rounds(most: usize, evaluator: Owner, owners: &[Owner]) -> Vec<Vec<(Owner, usize, bool)>> {
    let owners = owners.iter().copied();
    let mut owners: Vec<Owner> = owners
        .filter(|owner| owner.1 > 0 && owner.0 != evaluator.0 && evaluates(evaluator, *owner))
        .collect();
    owners.sort_by_key(|(id, rows)| (usize::MAX - rows, *id));
    let (mut rounds, mut room) = (Vec::<Vec<_>>::new(), 0);
    for owner in owners {
        for first in (0..owner.1).step_by(most) {
            let block = most.min(owner.1 - first);
            if block > room {
                rounds.push(Vec::new());
                room = most;
            }
            room -= block;
            if let Some(round) = rounds.last_mut() {
                round.push((owner, block, first == 0));
            }
        }
    }
    rounds
}

fn lwe(book: &mut Book<'_>, bits: usize, owners: &[Owner]) {
    let Some(class) = Class::of(bits) else {
        return;
    };
    let key = class.length * class.q as usize / 8;
    let header = class.n * class.h as usize / 8;
    for evaluator in owners.iter().copied() {
        let (me, rows) = evaluator;
        let rounds = rounds(class.max_columns(), evaluator, owners);
        for ((owner, owned), block, is_first) in rounds.iter().flatten().copied() {
            let up = (me, owner, phases::DISTANCES);
            if is_first {
                book.add(up, 33 + SEAL);
            }
            // A question for each message of keys.
            book.many(up, SEAL, block.div_ceil(TILE_BYTES / key));
            // All evaluators get the same keys.
            let by_rank = |other: &&Owner| evaluates(**other, (owner, owned)) && other.1 > 0;
            let first = owners.iter().filter(|other| other.0 != owner).find(by_rank);
            book.spared = first.is_some_and(|first| first.0 != me);
            let down = (owner, me, phases::DISTANCES);
            book.tiles(down, block, key, (TILE_BYTES / key * key, SEAL));
            book.spared = false;
        }
        let tiles = |rows: usize| {
            [
                (64, rows / 64),
                (rows % 64, usize::from(!rows.is_multiple_of(64))),
            ]
        };
        for round in rounds {
            for (place, ((owner, owned), block, is_first)) in round.into_iter().enumerate() {
                let to_owner = (me, owner, phases::DISTANCES);
                let numbers = (block * class.v as usize).div_ceil(8);
                let parities = |rows: usize| if is_first { rows.div_ceil(8) } else { 0 };
                // The parities come with the first tile.
                let mut due = [parities(rows), parities(owned)];
                for (tile, count) in tiles(rows) {
                    // All owners of a round get the same headers.
                    book.spared = place > 0;
                    book.many(to_owner, tile * header + SEAL, count);
                    book.spared = false;
                    book.many((owner, me, phases::DISTANCES), SEAL, count);
                    let len = 4 + tile * numbers + SEAL;
                    for (from, due) in [me, owner].into_iter().zip(&mut due) {
                        let link = (from, SERVER, phases::DISTANCES);
                        let first = usize::from(*due > 0 && count > 0);
                        book.many(link, len + *due, first);
                        book.many(link, len, count - first);
                        if first > 0 {
                            *due = 0;
                        }
                    }
                }
            }
        }
    }
}

/// The messages of a pair of two of `clients` clients. What is not made ahead of the transfers'
/// corrections comes with the requests.
fn shade(
    book: &mut Book<'_>,
    bits: usize,
    clients: usize,
    (sender, lanes): Owner,
    (receiver, rows): Owner,
) {
    let (w, f) = (width(bits), if 4 * bits <= 17 * lanes { 4 } else { 8 });
    let parts = 128 / f;
    let to_receiver = (sender, receiver, phases::OFFLINE);
    let to_sender = (receiver, sender, phases::OFFLINE);
    book.add(to_receiver, 128 * 64 + SEAL);
    book.add(to_sender, 32 + 32 * (128 - parts) + SEAL);
    let corrections = 256 * (parts - 1);
    let ahead = (64 << 20) / (clients - 1).max(1) / (16 * 2048);
    let chunks = |rows: usize| (rows * bits).div_ceil(2048);
    let mut made = chunks(rows).min(ahead);
    if made > 0 {
        book.tiles(to_sender, made, corrections, (TILE_BYTES, SEAL));
    }
    let per_tile = (65_536 / bits).min((1 << 19) / lanes).max(1);
    let whole = 2 * lanes * w;
    let short = 2 * lanes * (bits % 16 * w).div_ceil(16);
    let groups_a_message = ((1 << 21) / whole).max(1);
    let online = |from, to| (from, to, phases::DISTANCES);
    let (per_row, row) = (bits.div_ceil(16), bits / 16 * whole + short);
    for start in (0..rows).step_by(per_tile) {
        let tile = per_tile.min(rows - start);
        let late = chunks(start + tile).saturating_sub(made);
        made += late;
        let request = tile * 8 * bits.div_ceil(64) + 32 + SEAL + late * corrections;
        book.add(online(receiver, sender), request);
        // Only the last message can be shorter by more than the short groups in it.
        let groups = tile * per_row;
        let mut left = tile * row;
        for first in (0..groups).step_by(groups_a_message) {
            let last = groups.min(first + groups_a_message);
            let shorts = last / per_row - first / per_row;
            let shorts = if bits.is_multiple_of(16) { 0 } else { shorts };
            let len = (last - first - shorts) * whole + shorts * short;
            left -= len;
            book.add(online(sender, receiver), len);
        }
        debug_assert_eq!(left, 0);
        book.add(online(sender, receiver), 16 + SEAL);
        for end in [sender, receiver] {
            book.add(
                online(end, SERVER),
                4 + (tile * lanes * w).div_ceil(8) + SEAL,
            );
        }
    }
}

fn phe(book: &mut Book<'_>, params: &Params, (owner, owned): Owner, (evaluator, rows): Owner) {
    let (bits, key_bits) = (params.bits, params.phe.key_bits());
    let modulus = key_bits.div_ceil(8);
    let ciphertext = (2 * key_bits).div_ceil(8);
    let ahead = (owner, evaluator, phases::OFFLINE);
    book.add(ahead, modulus + SEAL);
    let zeros = (key_bits + 256).div_ceil(64) * 8;
    book.tiles(ahead, zeros, modulus, (512 * modulus, SEAL));
    let link = |from, to| (from, to, phases::DISTANCES);
    book.add(link(owner, SERVER), 4 + modulus + SEAL);
    book.add(link(evaluator, SERVER), 4 + 32 + SEAL);
    let slots = (key_bits - 1) / width(bits);
    for _ in 0..owned.div_ceil(slots) {
        let tile = (TILE_BYTES / ciphertext / 8 * 8 * ciphertext, SEAL);
        book.tiles(link(owner, evaluator), bits + 1, ciphertext, tile);
        let tile = (1024 * ciphertext, SEAL);
        book.tiles(link(evaluator, owner), rows, ciphertext, tile);
        book.tiles(
            link(owner, SERVER),
            rows,
            modulus,
            (1024 * modulus, 4 + SEAL),
        );
    }
}
