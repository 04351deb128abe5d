//! The messages between client and server, other than those of the setup, the distance backends and
//! the sums.

use std::ops::Range;

use undertone_party::frame::TILE_BYTES;
use undertone_party::{Abort, DecodeError, PartyId, Reader, Writer};
use undertone_setup::group::Member;

use crate::distances::Distances;
use crate::input::{Labelling, MAX_ROWS, names_digest};
use crate::params::Params;
use crate::shares::TILE;

const SERVER: PartyId = PartyId::SERVER;

/// What a client advertises in the setup. Every party compares it with its own.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Advertisement {
    pub(crate) rows: usize,
    /// Features in a row; 0 where rows come as codes.
    pub(crate) dim: usize,
    pub(crate) classes: usize,
    /// Digest of the names of the classes; zeros where classes are numbers.
    names: [u8; 16],
    params: [u8; 32],
}

impl Advertisement {
    pub(crate) fn new(rows: usize, dim: usize, classes: usize, params: &Params) -> Self {
        Self {
            rows,
            dim,
            classes,
            names: [0; 16],
            params: params.digest(),
        }
    }

    /// The same, for classes of these names.
    pub(crate) fn with_names(self, names: &[String]) -> Self {
        Self {
            names: names_digest(names),
            ..self
        }
    }

    pub(crate) fn write(&self) -> Vec<u8> {
        let mut w = Writer::default();
        w.u32(self.rows as u32);
        w.u32(self.dim as u32);
        w.u32(self.classes as u32);
        w.raw(&self.names);
        w.raw(&self.params);
        w.finish()
    }

    // SETUP-18
    fn read(bytes: &[u8]) -> Result<Self, DecodeError> {
        let mut r = Reader::new(bytes);
        let ad = Self {
            rows: r.index(MAX_ROWS + 1, "rows")?,
            dim: r.u32("features")? as usize,
            classes: r.index(crate::input::MAX_CLASSES + 1, "classes")?,
            names: r.array("names of the classes")?,
            params: r.array("digest of the parameters")?,
        };
        r.finish()?;
        Ok(ad)
    }
}

/// What a client's number of rows means for the rows of the others, if it is above the number of
/// features. Codes are signs of projections. Whoever knows the projection, as clients do, and the
/// distances of a row to enough known rows solves for the row's direction, which has as many
/// dimensions as features. How long codes are, and the backend, make no difference.
pub fn rows_warning(rows: usize, features: usize) -> Option<String> {
    (features > 0 && rows > features).then(|| {
        format!(
            "a client has {rows} rows, more than {features} features: it and the server could \
             compute others' codes"
        )
    })
}

/// The clients of a run, with their numbers of rows.
#[derive(Debug, Clone)]
pub(crate) struct Clients {
    pub(crate) rows: Vec<(PartyId, usize)>,
    /// Features in a row; 0 where rows come as codes.
    pub(crate) dim: usize,
    pub(crate) classes: usize,
}

impl Clients {
    /// The warning about the client with the most rows, other than `me`: see [`rows_warning`].
    pub(crate) fn warning(&self, me: Option<PartyId>) -> Option<String> {
        let others = self.rows.iter().filter(|(id, _)| Some(*id) != me);
        let most = others.map(|(_, rows)| *rows).max()?;
        rows_warning(most, self.dim)
    }

    /// Reads the members' advertisements and checks that they agree. A client compares them with
    /// its `own`, the server with the most common one. If no advertisement is the most common,
    /// nobody is to blame.
    pub(crate) fn of(
        members: &[Member],
        params: &Params,
        own: Option<(PartyId, Advertisement)>,
    ) -> Result<Self, Abort> {
        let mut rows = Vec::with_capacity(members.len());
        let mut first = match own {
            None => most_alike(members)?,
            own => own,
        };
        let mut total = 0;
        let expected = Advertisement::new(0, 0, 0, params).params;
        for member in members {
            let ad =
                Advertisement::read(&member.advertisement).map_err(Abort::malformed(member.id))?;
            let cheated = |check: String| {
                Err(Abort::Cheated {
                    culprit: member.id,
                    fault: check,
                })
            };
            // SETUP-19
            if ad.params != expected {
                return cheated("its parameters differ from this party's".into());
            }
            let (one, same) = first.get_or_insert_with(|| (member.id, ad.clone()));
            // SETUP-20
            if ad.dim != same.dim {
                let kind = |dim: usize| match dim {
                    0 => "codes".to_owned(),
                    dim => format!("{dim} features"),
                };
                return cheated(format!(
                    "its rows have {}, those of {one} {}",
                    kind(ad.dim),
                    kind(same.dim)
                ));
            }
            // SETUP-21
            if ad.classes != same.classes {
                return cheated(format!(
                    "it has {} classes, {one} has {}; state them (--classes, in Python classes=), \
                     or classes in the job",
                    ad.classes, same.classes
                ));
            }
            // SETUP-23
            if ad.names != same.names {
                return cheated(format!(
                    "its classes have other names than those of {one}; state them (--classes, in \
                     Python classes=), or class_names in the job"
                ));
            }
            // SETUP-22
            total += ad.rows;
            if total > MAX_ROWS {
                return cheated(format!(
                    "with its rows there are more than {MAX_ROWS} in all"
                ));
            }
            rows.push((member.id, ad.rows));
        }
        Ok(Self {
            rows,
            dim: first.as_ref().map_or(0, |(_, ad)| ad.dim),
            classes: first.map_or(0, |(_, ad)| ad.classes),
        })
    }

    /// Refuses another client than `me` with more than `most` rows (LABEL-1).
    pub(crate) fn check_rows(&self, me: PartyId, most: Option<usize>) -> Result<(), Abort> {
        let most = most.unwrap_or(usize::MAX);
        let mut others = self.rows.iter().filter(|(id, _)| *id != me);
        match others.find(|(_, rows)| *rows > most) {
            None => Ok(()),
            Some((id, rows)) => Err(Abort::Misuse(format!(
                "{id} brings {rows} rows, at most {most} are allowed: together with the server \
                 its distances would come near to telling this client's codes"
            ))),
        }
    }
}

/// A member with the most common number of features and of classes.
fn most_alike(members: &[Member]) -> Result<Option<(PartyId, Advertisement)>, Abort> {
    let mut shapes: Vec<(usize, PartyId, Advertisement)> = Vec::new();
    for member in members {
        let ad = Advertisement::read(&member.advertisement).map_err(Abort::malformed(member.id))?;
        let same = |(_, _, other): &&mut (usize, PartyId, Advertisement)| {
            (other.dim, other.classes, other.names) == (ad.dim, ad.classes, ad.names)
        };
        match shapes.iter_mut().find(same) {
            Some((count, ..)) => *count += 1,
            None => shapes.push((1, member.id, ad)),
        }
    }
    let most = shapes.iter().map(|(count, ..)| *count).max();
    let mut alike = shapes.iter().filter(|(count, ..)| Some(*count) == most);
    match (alike.next(), alike.next()) {
        (Some((_, a, one)), Some((_, b, other))) => Err(Abort::Misuse(format!(
            "clients' rows differ, and no shape is the most common: {a} brings {} features and {} \
             classes, {b} {} and {}",
            one.dim, one.classes, other.dim, other.classes
        ))),
        (first, _) => Ok(first.map(|(_, id, ad)| (*id, ad.clone()))),
    }
}

/// The message *own rows*: for each row of a client, whether it is labelled and which rows of the
/// same client are nearest.
#[derive(Debug, Clone, Copy)]
pub(crate) struct OwnRows {
    pub(crate) rows: usize,
    pub(crate) neighbours: usize,
    pub(crate) bits: usize,
}

impl OwnRows {
    pub(crate) fn new(rows: usize, params: &Params) -> Self {
        Self {
            rows,
            neighbours: params.neighbours.min(rows.saturating_sub(1)),
            bits: params.bits,
        }
    }

    fn record_len(&self) -> usize {
        1 + 6 * self.neighbours
    }

    /// The rows of the message that starts with row `first`.
    fn window(&self, first: usize) -> Range<usize> {
        first
            ..self
                .rows
                .min(first + (TILE_BYTES / self.record_len()).max(1))
    }

    /// The message that starts with row `first`, and the first row of the next message.
    pub(crate) fn write(
        &self,
        first: usize,
        labelling: &Labelling,
        near: &Distances,
    ) -> (Vec<u8>, usize) {
        let window = self.window(first);
        let mut w = Writer::with_capacity(window.len() * self.record_len());
        for row in window.clone() {
            w.u8(labelling.labels()[row].is_some().into());
            for (distance, id) in near.nearest(row) {
                w.u32(id as u32);
                w.u16(distance);
            }
        }
        (w.finish(), window.end)
    }
}

/// What the server has received of a client's own rows. Memory grows with what has arrived, not
/// with what was announced.
pub(crate) struct HeardRows {
    pub(crate) id: PartyId,
    shape: OwnRows,
    pub(crate) labelled: Vec<bool>,
    /// (distance, row): `shape.neighbours` entries for each row.
    near: Vec<(u16, u32)>,
    messages: usize,
    pub(crate) remains: bool,
}

impl HeardRows {
    pub(crate) fn new(id: PartyId, shape: OwnRows) -> Self {
        Self {
            id,
            shape,
            labelled: Vec::new(),
            near: Vec::new(),
            messages: 0,
            remains: true,
        }
    }

    pub(crate) fn is_due(&self) -> bool {
        self.remains && (self.messages == 0 || self.labelled.len() < self.shape.rows)
    }

    /// Takes the next message.
    pub(crate) fn take(&mut self, bytes: &[u8]) -> Result<(), Abort> {
        let malformed = Abort::malformed(self.id);
        let OwnRows {
            rows,
            neighbours,
            bits,
        } = self.shape;
        let mut r = Reader::new(bytes);
        for row in self.shape.window(self.labelled.len()) {
            // DIST-1
            let is_labelled = r.flag("label flag").map_err(&malformed)?;
            let start = self.near.len();
            for _ in 0..neighbours {
                // DIST-2
                let id = r.index(rows, "neighbour").map_err(&malformed)?;
                let distance = r.u16("distance").map_err(&malformed)?;
                self.near.push((distance, id as u32));
            }
            // DIST-3
            let near = &self.near[start..];
            let mut ids: Vec<u32> = near.iter().map(|(_, id)| *id).collect();
            ids.sort_unstable();
            // DIST-3
            let possible = near.is_sorted()
                && ids.is_sorted_by(|a, b| a < b)
                && ids.binary_search(&(row as u32)).is_err()
                && near
                    .last()
                    .is_none_or(|(distance, _)| usize::from(*distance) <= bits);
            if !possible {
                return Err(Abort::Cheated {
                    culprit: self.id,
                    fault: format!(
                        "the neighbours of its row {row} repeat, are out of order, or are more \
                         than {bits} bits away"
                    ),
                });
            }
            self.labelled.push(is_labelled);
        }
        // DIST-4
        r.finish().map_err(&malformed)?;
        self.messages += 1;
        Ok(())
    }

    /// Offers the neighbours to `to`, in which this is client number `place`.
    pub(crate) fn offer(&self, to: &mut Distances, place: usize) {
        let offset = to.offset(place);
        let rows = self.near.chunks_exact(self.shape.neighbours.max(1));
        for (row, near) in rows.enumerate() {
            for (distance, id) in near {
                to.offer(offset + row, *distance, offset + *id as usize);
            }
        }
    }
}

/// The plan: what the server tells a client about the rows of all clients.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Plan {
    /// Unlabelled rows of all clients.
    pub(crate) unlabelled: usize,
    /// The place of the client's first unlabelled row among them.
    pub(crate) own_start: usize,
}

impl Plan {
    pub(crate) fn write(self) -> Vec<u8> {
        let mut w = Writer::default();
        w.u32(self.unlabelled as u32);
        w.u32(self.own_start as u32);
        w.finish()
    }

    /// Reads the plan of a client with this `labelling`, in a run of these `roster` clients.
    pub(crate) fn read(
        bytes: &[u8],
        labelling: &Labelling,
        roster: &Clients,
    ) -> Result<Self, Abort> {
        let total: usize = roster.rows.iter().map(|(_, rows)| rows).sum();
        let labelled = labelling.labelled().count();
        let own = labelling.rows() - labelled;
        let malformed = Abort::malformed(SERVER);
        // LABEL-11
        let mut r = Reader::new(bytes);
        let unlabelled = r.index(total + 1, "unlabelled rows").map_err(&malformed)?;
        let own_start = r.index(total + 1, "first own row").map_err(&malformed)?;
        r.finish().map_err(&malformed)?;
        // LABEL-12
        if unlabelled + labelled > total {
            return Err(Abort::cheated(
                SERVER,
                "it announces more unlabelled rows than there are beside this client's labelled \
                 ones",
            ));
        }
        // LABEL-13
        if own_start + own > unlabelled {
            return Err(Abort::cheated(
                SERVER,
                "this client's unlabelled rows are not among all unlabelled rows",
            ));
        }
        check_scores(unlabelled, labelling.classes())?; // LABEL-14
        Ok(Self {
            unlabelled,
            own_start,
        })
    }
}

/// Refuses a run if its matrix of scores would take more than 512 MiB.
pub(crate) fn check_scores(rows: usize, classes: usize) -> Result<(), Abort> {
    const MOST: usize = 1 << 27;
    match rows.checked_mul(classes) {
        Some(scores) if scores <= MOST => Ok(()),
        _ => Err(Abort::Misuse(format!(
            "{rows} unlabelled rows of {classes} classes are more than {MOST} scores"
        ))),
    }
}

/// The number of words in the next message of columns, after `done` words. The client gets
/// `columns` columns of `height` words. A message holds whole columns. If no whole column fits a
/// message, it holds a part of one.
pub(crate) fn column_words(done: usize, columns: usize, height: usize) -> usize {
    const MOST: usize = TILE_BYTES / size_of::<u32>();
    const { assert!(MOST.is_multiple_of(TILE)) };
    if height > MOST {
        return MOST.min(height - done % height);
    }
    match height {
        0 => 0,
        _ => (columns - done / height).min(MOST / height) * height,
    }
}

#[cfg(test)]
mod tests {
    use undertone_party::SessionId;

    use super::*;

    /// SETUP-18, SETUP-22.
    #[test]
    fn too_many_rows_are_refused() {
        let params = Params::default();
        let member = |place: usize, rows: usize| {
            let id = PartyId::client(place);
            let ad = Advertisement::new(rows, 3, 2, &params).write();
            Member::new(SessionId([1; 32]), "sign setup", id, [[0; 32]], ad, None).unwrap()
        };
        let refused = |rows: [usize; 2]| {
            let members = [member(0, rows[0]), member(1, rows[1])];
            Clients::of(&members, &params, None).unwrap_err()
        };
        let alone = refused([1, MAX_ROWS + 1]);
        assert!(matches!(alone, Abort::Malformed { .. }), "{alone}");
        let together = refused([1, MAX_ROWS]);
        assert!(together.to_string().contains("16777216 in all"));
        for aborted in [alone, together] {
            assert_eq!(aborted.culprit(), Some(PartyId::client(1)));
        }
    }

    /// LABEL-14.
    #[test]
    fn too_many_scores_are_refused() {
        let rows = 3000;
        let roster = Clients {
            rows: vec![(PartyId::client(0), rows)],
            dim: 0,
            classes: 65_536,
        };
        let labelling = Labelling::new(65_536, vec![None; rows]).unwrap();
        let plan = Plan {
            unlabelled: rows,
            own_start: 0,
        };
        let refused = Plan::read(&plan.write(), &labelling, &roster).unwrap_err();
        assert!(refused.to_string().contains("are more than"), "{refused}");
    }

    /// Each message fits a tile and holds whole columns, or a part of one. Together they are all
    /// columns.
    #[test]
    fn columns_in_messages() {
        const MOST: usize = TILE_BYTES / 4;
        for (columns, height) in [
            (3, MOST + 5),
            (2, 3 * MOST),
            (7, MOST / 2 - 1),
            (5, 1),
            (4, MOST),
        ] {
            let (mut done, mut messages) = (0, 0);
            while done < columns * height {
                let words = column_words(done, columns, height);
                assert!((1..=MOST).contains(&words));
                let whole = done.is_multiple_of(height) && words.is_multiple_of(height);
                let within =
                    done % height + words <= height && (done % height).is_multiple_of(TILE);
                assert!(
                    whole || within,
                    "{words} words after {done} of columns of {height}"
                );
                done += words;
                messages += 1;
            }
            assert_eq!(done, columns * height);
            let each = if height > MOST {
                height.div_ceil(MOST) * columns
            } else {
                columns.div_ceil(MOST / height)
            };
            assert_eq!(messages, each);
        }
        assert_eq!(column_words(0, 0, 7) + column_words(0, 7, 0), 0);
    }
}
