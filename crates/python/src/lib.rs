//! The Rust half of the Python module `undertone`: parties, and functions that run all parties in
//! one process. The Python half, in `python/undertone`, has the types and the documentation.
#![forbid(unsafe_code)]

mod arrays;
mod client;
mod costs;
mod cotrain;
mod drive;
mod errors;
mod fedgraph;
mod home;
mod interrupt;
mod keys;
mod label;
mod model;
mod net;
mod options;
mod party;
mod pool;
mod primitives;
mod pssl;
mod record;
mod rounds;
mod server;
mod sessions;
mod sum;
mod table;
mod train;

use pyo3::prelude::*;

#[pymodule]
fn _engine(m: &Bound<'_, PyModule>) -> PyResult<()> {
    let py = m.py();
    m.add("UndertoneError", py.get_type::<errors::UndertoneError>())?;
    m.add("AbortedError", py.get_type::<errors::AbortedError>())?;
    m.add("RefusedError", py.get_type::<errors::RefusedError>())?;
    m.add("__version__", env!("CARGO_PKG_VERSION"))?;
    options::backends(m)?;
    m.add_class::<client::PyClient>()?;
    m.add_class::<party::PyParty>()?;
    m.add_class::<server::PyServer>()?;
    m.add_class::<keys::PyCheckpoint>()?;
    m.add_class::<record::PyRecord>()?;
    m.add_class::<cotrain::Cotraining>()?;
    m.add_class::<model::Batches>()?;
    m.add_class::<train::Training>()?;
    m.add_class::<primitives::Paillier>()?;
    m.add_class::<primitives::Encrypted>()?;
    m.add_function(wrap_pyfunction!(cotrain::cotrain_epsilon, m)?)?;
    m.add_function(wrap_pyfunction!(cotrain::public_digest, m)?)?;
    m.add_function(wrap_pyfunction!(fedgraph::fedgraph, m)?)?;
    m.add_function(wrap_pyfunction!(fedgraph::fedgraph_client, m)?)?;
    m.add_function(wrap_pyfunction!(fedgraph::fedgraph_server, m)?)?;
    m.add_function(wrap_pyfunction!(keys::generate_key, m)?)?;
    m.add_function(wrap_pyfunction!(keys::keep_journal, m)?)?;
    m.add_function(wrap_pyfunction!(keys::public_key, m)?)?;
    m.add_function(wrap_pyfunction!(keys::read_roster, m)?)?;
    m.add_function(wrap_pyfunction!(label::label, m)?)?;
    m.add_function(wrap_pyfunction!(label::label_client, m)?)?;
    m.add_function(wrap_pyfunction!(label::label_server, m)?)?;
    m.add_function(wrap_pyfunction!(net::join, m)?)?;
    m.add_function(wrap_pyfunction!(rounds::rounds_client, m)?)?;
    m.add_function(wrap_pyfunction!(rounds::rounds_server, m)?)?;
    m.add_function(wrap_pyfunction!(train::train_client, m)?)?;
    m.add_function(wrap_pyfunction!(train::train_server, m)?)?;
    m.add_function(wrap_pyfunction!(cotrain::cotrain_client, m)?)?;
    m.add_function(wrap_pyfunction!(cotrain::cotrain_server, m)?)?;
    m.add_function(wrap_pyfunction!(net::main, m)?)?;
    m.add_function(wrap_pyfunction!(primitives::distances, m)?)?;
    m.add_function(wrap_pyfunction!(primitives::ot, m)?)?;
    m.add_function(wrap_pyfunction!(pssl::pssl, m)?)?;
    m.add_function(wrap_pyfunction!(pssl::pssl_client, m)?)?;
    m.add_function(wrap_pyfunction!(options::job_digest, m)?)?;
    m.add_function(wrap_pyfunction!(options::job_offer, m)?)?;
    m.add_function(wrap_pyfunction!(options::job_read, m)?)?;
    m.add_function(wrap_pyfunction!(options::check_terms, m)?)?;
    m.add_function(wrap_pyfunction!(pssl::pssl_server, m)?)?;
    m.add_function(wrap_pyfunction!(sum::sum_client, m)?)?;
    m.add_function(wrap_pyfunction!(sum::sum_server, m)?)?;
    m.add_function(wrap_pyfunction!(sum::groups, m)?)?;
    m.add_function(wrap_pyfunction!(sum::word_bits, m)?)?;
    m.add_function(wrap_pyfunction!(table::columns_digest, m)?)?;
    m.add_function(wrap_pyfunction!(table::parse_labels, m)?)?;
    m.add_function(wrap_pyfunction!(table::strangers, m)?)?;
    m.add_function(wrap_pyfunction!(model::batches, m)?)?;
    Ok(())
}
