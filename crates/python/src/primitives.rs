//! Distances, oblivious transfer and Paillier's cryptosystem, for measurements and lessons.

use std::sync::{Arc, Mutex, PoisonError};

use num_bigint::BigUint;
use numpy::ndarray::Array2;
use numpy::{IntoPyArray, PyArray2, PyReadonlyArray1, PyReadonlyArray3};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use undertone::hamming::tiles::{Sink, Tile};
use undertone::hamming::{Backend, Phe};
use undertone::kdf::Seed;
use undertone::kernel::mask::Suite;
use undertone::label::{Codes, Rows};
use undertone::ot::{Field, Security, chosen};
use undertone::paillier::{Ciphertexts, Noise, NoiseTable, Primes, PublicKey, SecretKey};
use undertone::party::{Ledger, Network, PartyId, SessionId};
use undertone::simulate::{DistanceSimulation, TransferSimulation};

use crate::arrays::{self, contiguous};
use crate::costs::{Spent, spent};
use crate::errors::{self, simulation, value};
use crate::interrupt;
use crate::options;
use crate::pool;

/// Keeps the distances between the rows of two clients.
struct Matrix {
    shape: (usize, usize),
    values: Arc<Mutex<Vec<u16>>>,
}

impl Sink for Matrix {
    fn fork(&self) -> Self {
        Self {
            shape: self.shape,
            values: Arc::clone(&self.values),
        }
    }

    fn join(&mut self, _: Self) {}

    fn tile(&mut self, tile: &Tile<'_>) {
        let mut values = self.values.lock().unwrap_or_else(PoisonError::into_inner);
        let width = tile.right.rows.len();
        for (i, left) in tile.left.rows.clone().enumerate() {
            for (j, right) in tile.right.rows.clone().enumerate() {
                let distance = tile.distances[i * width + j];
                let at = match tile.left.client {
                    0 => left * self.shape.1 + right,
                    _ => right * self.shape.1 + left,
                };
                values[at] = distance;
            }
        }
    }
}

/// The distances between the codes of the rows of two clients, uint16 of shape [rows of a, rows of
/// b], and what each party spent.
#[pyfunction]
#[pyo3(signature = (a, b, bits, backend, suite, seed))]
pub(crate) fn distances<'py>(
    py: Python<'py>,
    a: &Bound<'py, PyAny>,
    b: &Bound<'py, PyAny>,
    bits: usize,
    backend: &str,
    suite: &str,
    seed: Option<[u8; 32]>,
) -> PyResult<(Bound<'py, PyArray2<u16>>, Spent)> {
    let backend: Backend = backend.parse().map_err(value)?;
    if !(1..=backend.max_bits()).contains(&bits) {
        let range = backend.bits_range();
        return Err(value(format!("bits is {bits}; it must be {range}")));
    }
    let suite: Suite = suite.parse().map_err(value)?;
    let seed = options::seed(seed)?;
    let rows = [
        arrays::rows(a, bits).map_err(|error| errors::prefixed(py, "a", &error))?,
        arrays::rows(b, bits).map_err(|error| errors::prefixed(py, "b", &error))?,
    ];
    if let [Rows::Features(first), Rows::Features(second)] = &rows
        && first.dim() != second.dim()
    {
        return Err(value(format!(
            "a has shape [{}, {}] and b [{}, {}]; both need the same number of features",
            rows[0].len(),
            first.dim(),
            rows[1].len(),
            second.dim()
        )));
    }
    if let [Rows::Features(_), Rows::Codes(_)] | [Rows::Codes(_), Rows::Features(_)] = &rows {
        return Err(value("one of a and b is codes, the other one features"));
    }
    let shape = (rows[0].len(), rows[1].len());
    let (values, ledgers) = interrupt::run(py, None, |tell| {
        let hashes = seed.derive(SessionId([0; 32]), "codes", &[]);
        let mut codes = Vec::with_capacity(2);
        for rows in rows {
            codes.push(match rows {
                Rows::Features(features) => Codes::hash(&features, &hashes, bits).into_bits(),
                Rows::Codes(codes) => codes.into_bits(),
            });
        }
        let values = Arc::new(Mutex::new(vec![0; shape.0 * shape.1]));
        let run = DistanceSimulation {
            backend,
            suite,
            phe: Phe::default(),
            codes,
            min_clients: 2,
            sink: Matrix {
                shape,
                values: Arc::clone(&values),
            },
            seed,
        };
        let network = Network::new().observe(interrupt::observer(tell));
        let run = run.run_over(network).map_err(simulation)?;
        for client in run.clients {
            client.map_err(|error| errors::aborted(&error))?;
        }
        let values = std::mem::take(&mut *values.lock().unwrap_or_else(PoisonError::into_inner));
        Ok((values, run.ledgers))
    })?;
    let matrix = Array2::from_shape_vec(shape, values).map_err(value)?;
    Ok((matrix.into_pyarray(py), spent(&ledgers)))
}

fn block(bytes: &[u8]) -> u128 {
    let mut block = [0; 16];
    block.copy_from_slice(bytes);
    u128::from_le_bytes(block)
}

/// Oblivious transfers of chosen messages: `messages` uint8 of shape [n, 2, 16], `choices` bool of
/// shape [n]. Returns the chosen messages, uint8 of shape [n, 16], and what each party spent.
#[pyfunction]
#[pyo3(signature = (messages, choices, malicious, seed))]
pub(crate) fn ot<'py>(
    py: Python<'py>,
    messages: PyReadonlyArray3<'py, u8>,
    choices: PyReadonlyArray1<'py, bool>,
    malicious: bool,
    seed: Option<[u8; 32]>,
) -> PyResult<(Bound<'py, PyArray2<u8>>, Spent)> {
    let shape = messages.as_array().dim();
    let (count, wanted) = (shape.0, contiguous(&choices)?);
    if shape.1 != 2 || shape.2 != 16 || wanted.len() != count {
        return Err(PyValueError::new_err(format!(
            "messages have shape {shape:?} and choices {}; [n, 2, 16] and [n] are needed",
            wanted.len()
        )));
    }
    let bytes = contiguous(&messages)?;
    let seed = options::seed(seed)?;
    let (out, ledgers) = pool::detach(py, || transfers(bytes, wanted, malicious, seed))?;
    let out = Array2::from_shape_vec((count, 16), out).map_err(value)?;
    let parties = [PartyId::client(0), PartyId::client(1)];
    let ledgers: Vec<_> = parties.into_iter().zip(ledgers).collect();
    Ok((out.into_pyarray(py), spent(&ledgers)))
}

fn transfers(
    messages: &[u8],
    wanted: &[bool],
    malicious: bool,
    seed: Seed,
) -> PyResult<(Vec<u8>, [Ledger; 2])> {
    let run = TransferSimulation {
        field: Field::new(2).ok_or_else(|| value("no field of 2 bits"))?,
        security: if malicious {
            Security::Malicious
        } else {
            Security::SemiHonest
        },
        count: wanted.len() as u64,
        seed,
    };
    // Each batch gives its keys from the first on. Choices of a batch begin at a new word.
    let (mut sent, mut received) = (Vec::new(), Vec::new());
    let ledgers = run.run(
        |batch| {
            let mut keys = [Vec::new(), Vec::new()];
            batch.random(&mut keys);
            sent.push(keys);
        },
        |batch| {
            let mut keys = Vec::new();
            batch.random(&mut keys);
            received.push((keys, batch.choices()));
        },
    );
    let ledgers = ledgers.map_err(|error| errors::aborted(&error))?;
    let mut out = Vec::with_capacity(16 * wanted.len());
    let (mut messages, mut wanted) = (messages, wanted);
    for ([zeros, ones], (keys, random)) in sent.iter().zip(&received) {
        let (these, left) = messages.split_at(32 * keys.len());
        let (chosen, rest) = wanted.split_at(keys.len());
        (messages, wanted) = (left, rest);
        let mut bits = vec![0_u64; keys.len().div_ceil(64)];
        for (at, one) in chosen.iter().enumerate() {
            bits[at / 64] |= u64::from(*one) << (at % 64);
        }
        let pairs = these.chunks_exact(32);
        let pairs: Vec<[u128; 2]> = pairs
            .map(|pair| [block(&pair[..16]), block(&pair[16..])])
            .collect();
        let asked = chosen::choose(&bits, random);
        let offered = chosen::offer(&asked, [zeros, ones], &pairs).map_err(value)?;
        let opened = chosen::open(&bits, keys, &offered).map_err(value)?;
        out.extend(opened.iter().flat_map(|message| message.to_le_bytes()));
    }
    Ok((out, ledgers))
}

/// A key of Paillier's cryptosystem. Boxed: Python aligns objects to 16 bytes, and the fast paths
/// need 64.
#[pyclass(frozen, module = "undertone._engine")]
pub(crate) struct Paillier {
    secret: Box<SecretKey>,
    table: Box<NoiseTable>,
}

/// Numbers that are encrypted under one key.
#[pyclass(frozen, module = "undertone._engine")]
pub(crate) struct Encrypted {
    ciphertexts: Box<Ciphertexts>,
}

#[pymethods]
impl Encrypted {
    fn __len__(&self) -> usize {
        self.ciphertexts.len()
    }

    fn encode<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, pyo3::types::PyBytes>> {
        let out = pool::detach(py, || {
            let mut out = Vec::new();
            let key = self.ciphertexts.key();
            key.encode(&self.ciphertexts, &mut out).map_err(value)?;
            Ok(out)
        })?;
        Ok(pyo3::types::PyBytes::new(py, &out))
    }

    #[getter]
    fn modulus(&self) -> BigUint {
        self.ciphertexts.key().modulus().clone()
    }

    fn add(&self, py: Python<'_>, other: &Self) -> PyResult<Self> {
        self.with(py, |key, sum| {
            key.add(sum, &other.ciphertexts).map_err(value)
        })
    }

    fn add_plain(&self, py: Python<'_>, numbers: Vec<BigUint>) -> PyResult<Self> {
        self.with(py, |key, sum| key.add_plain(sum, &numbers).map_err(value))
    }

    fn multiply(&self, py: Python<'_>, numbers: Vec<BigUint>) -> PyResult<Self> {
        self.with(py, |key, product| {
            key.multiply_plain(product, &numbers).map_err(value)
        })
    }
}

impl Encrypted {
    fn with(
        &self,
        py: Python<'_>,
        work: impl FnOnce(&PublicKey, &mut Ciphertexts) -> PyResult<()> + Send,
    ) -> PyResult<Self> {
        pool::detach(py, || {
            let mut ciphertexts = self.ciphertexts.clone();
            let key = ciphertexts.key().clone();
            work(&key, &mut ciphertexts)?;
            Ok(Self { ciphertexts })
        })
    }
}

#[pymethods]
impl Paillier {
    #[new]
    fn new(py: Python<'_>, bits: usize) -> PyResult<Self> {
        pool::detach(py, || {
            let mut prg = options::seed(None)?.prg();
            let secret = SecretKey::generate(bits, Primes::default(), &mut prg).map_err(value)?;
            let table = secret.public().noise_table(&mut prg);
            let (secret, table) = (Box::new(secret), Box::new(table));
            Ok(Self { secret, table })
        })
    }

    #[getter]
    fn modulus(&self) -> BigUint {
        self.secret.public().modulus().clone()
    }

    fn encrypt(&self, py: Python<'_>, numbers: Vec<BigUint>) -> PyResult<Encrypted> {
        pool::detach(py, || {
            let mut prg = options::seed(None)?.prg();
            let noise = Noise::Short(&self.table);
            let encrypted = self.secret.public().encrypt(&numbers, noise, &mut prg);
            let ciphertexts = Box::new(encrypted.map_err(value)?);
            Ok(Encrypted { ciphertexts })
        })
    }

    fn decrypt(&self, py: Python<'_>, encrypted: &Encrypted) -> PyResult<Vec<BigUint>> {
        pool::detach(py, || {
            self.secret.decrypt(&encrypted.ciphertexts).map_err(value)
        })
    }

    fn decode(&self, py: Python<'_>, bytes: &[u8]) -> PyResult<Encrypted> {
        pool::detach(py, || {
            let ciphertexts = Box::new(self.secret.public().decode(bytes).map_err(value)?);
            Ok(Encrypted { ciphertexts })
        })
    }
}
