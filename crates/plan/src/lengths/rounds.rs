//! Sums and means of arrays, round after round.

use undertone_party::{PartyId, Phase};
use undertone_rounds::{CONTRIBUTION, Job, RESULT, ROUND};

use super::sum::Group;
use super::{Book, Link, SERVER, Take};

/// The public shape of a round.
#[derive(Debug, Clone)]
pub struct RoundShape {
    /// Number of clients.
    pub clients: usize,
    /// Number of values of a client.
    pub values: usize,
    /// Length of the layout in bytes.
    pub layout: usize,
    /// Number of contributors to the last mean, if there is one.
    pub last: Option<usize>,
    /// The clients that lack the last mean.
    pub lacking: Vec<usize>,
}

/// A round.
pub fn round<'a>(job: &Job, shape: &RoundShape, take: &'a mut Take<'a>) {
    let (book, words) = (&mut Book::new(take), job.words(shape.values));
    let mean = |book: &mut Book<'_>, to: PartyId, phase: Phase, contributors: usize| {
        mean(book, (SERVER, to, phase), contributors, words, shape.layout);
    };
    let group = Group::new(job.trust, shape.clients);
    for place in 0..shape.clients {
        let me = PartyId::client(place);
        book.add((me, SERVER, ROUND), 4);
        book.add((SERVER, me, ROUND), 4 + 1 + 1);
        if let Some(contributors) = shape.last.filter(|_| shape.lacking.contains(&place)) {
            mean(book, me, ROUND, contributors);
        }
        book.add((me, SERVER, CONTRIBUTION), shape.layout);
        book.add((SERVER, me, CONTRIBUTION), shape.layout);
        group.sum(book, me, words, 8);
        mean(book, me, RESULT, shape.clients);
    }
}

fn mean(book: &mut Book<'_>, link: Link, contributors: usize, words: usize, layout: usize) {
    book.add(link, 4 + 4 + 4 * contributors + layout);
    book.words(link, words, 8);
}

/// The session after the last round of a job in which clients are drawn: so many of all clients get
/// the last mean, which they lack.
pub fn late<'a>(job: &Job, lacking: usize, values: usize, layout: usize, take: &'a mut Take<'a>) {
    let book = &mut Book::new(take);
    for place in 0..job.clients {
        let me = PartyId::client(place);
        book.add((me, SERVER, ROUND), 4);
        book.add((SERVER, me, ROUND), 4 + 1 + 1);
        if place < lacking {
            let contributors = job.clients - lacking;
            mean(
                book,
                (SERVER, me, ROUND),
                contributors,
                job.words(values),
                layout,
            );
        }
    }
}
