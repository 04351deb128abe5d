//! Compiles `proto/undertone.proto`. Needs no `protoc` on the system.

fn main() -> Result<(), Box<dyn std::error::Error>> {
    println!("cargo::rerun-if-changed=proto");
    let description = protox::compile(["undertone.proto"], ["proto"])?;
    tonic_prost_build::configure()
        .bytes(".")
        .compile_fds(description)?;
    Ok(())
}
