//! Training.

use undertone_label::Variant;
use undertone_party::PartyId;
use undertone_sum::{Sampling, UNMASK};
use undertone_train::{Job, MODEL, PseudoLabels, UPDATE};

use super::label::{Shape, label};
use super::sum::{Group, SEALED, setup};
use super::{Book, Messages, SERVER, Take};

/// A session of a training job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Training {
    /// The census, with this number of groups.
    Census(usize),
    /// The round of this number.
    Round(u32),
    /// The end of the job.
    Over,
}

/// A session of a training job with these members. `rows` are those of each, and its labelled rows.
pub fn training<'a>(
    job: &Job,
    session: Training,
    members: &[PartyId],
    rows: &[(usize, usize)],
    take: &'a mut Take<'a>,
) {
    let (clients, params) = (members.len(), &job.propagation);
    let is_joint = job.pseudo == PseudoLabels::Joint;
    let is_free = job.sampling == Sampling::Free;
    // Clients are numbered by their places.
    let name = |who: PartyId| who.index().map_or(who, |place| members[place]);
    let named = &mut |messages: Messages| {
        take(Messages {
            from: name(messages.from),
            to: name(messages.to),
            ..messages
        });
    };
    match session {
        Training::Census(_) => {
            setup(
                &mut Book::new(named),
                &vec![56; clients],
                params.trust,
                SEALED,
            );
        }
        Training::Round(number) if is_joint && number > job.label_rounds => {
            let variant = match params.variant {
                Variant::Balanced if is_free => Variant::Counted,
                other => other,
            };
            let shape = Shape::new(rows.to_vec(), job.classes);
            let params = undertone_label::Params { variant, ..*params };
            label(&params, &shape, named);
        }
        _ => {}
    }
    let book = &mut Book::new(take);
    let group = Group::new(params.trust, clients);
    for me in members.iter().copied() {
        book.add((SERVER, me, MODEL), 41 + 4 * clients);
        match session {
            Training::Census(groups) => {
                if is_joint && is_free && params.variant == Variant::Balanced {
                    group.sum(book, me, job.classes, 4);
                    book.add((SERVER, me, UNMASK), 4 * job.classes);
                }
                let grouped = if is_free { 0 } else { clients };
                book.add((me, SERVER, MODEL), 4 + 4 * groups + 4 * grouped);
            }
            Training::Round(_) => {
                book.words((SERVER, me, MODEL), job.parameters, 4);
                book.add((me, SERVER, UPDATE), 0);
                group.sum(book, me, job.parameters, 4);
            }
            Training::Over => book.words((SERVER, me, MODEL), job.parameters, 4),
        }
    }
}
