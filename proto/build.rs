//! Compiles the protos without a system protoc.
#![allow(
    clippy::disallowed_methods,
    reason = "build scripts are told where to write through the environment"
)]
use std::path::{Path, PathBuf};
use std::{env, error::Error, fs};

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo:rerun-if-changed=spareline");
    let out = PathBuf::from(env::var("OUT_DIR")?);
    let mut files = Vec::new();
    find(Path::new("spareline"), &mut files)?;
    files.sort();

    let mut compiler = protox::Compiler::new(["."])?;
    compiler.include_imports(true).include_source_info(true).open_files(&files)?;
    fs::write(out.join("descriptors.bin"), compiler.encode_file_descriptor_set())?;

    // Messages with a secret get a Debug that leaves it out, wherever the proto says `debug_redact`.
    let mut redacted = Vec::new();
    let mut debug_impls = String::new();
    for message in compiler.descriptor_pool().all_messages() {
        let secret = |f: &prost_reflect::FieldDescriptor| {
            f.options().get_field_by_name("debug_redact").is_some_and(|v| v.as_bool() == Some(true))
        };
        if !message.fields().any(|f| secret(&f)) {
            continue;
        }
        redacted.push(format!(".{}", message.full_name()));
        let path = message.full_name().replace('.', "::");
        debug_impls.push_str(&format!(
            "impl std::fmt::Debug for {path} {{\n    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {{\n        let mut out = f.debug_struct(\"{}\");\n",
            message.name()
        ));
        for field in message.fields() {
            let name = field.name();
            if secret(&field) {
                debug_impls.push_str(&format!("        out.field(\"{name}\", &\"<redacted>\");\n"));
            } else {
                debug_impls.push_str(&format!("        out.field(\"{name}\", &self.{name});\n"));
            }
        }
        debug_impls.push_str("        out.finish()\n    }\n}\n");
    }
    fs::write(out.join("debug.rs"), debug_impls)?;

    let services = env::var_os("CARGO_FEATURE_SERVICES").is_some();
    tonic_prost_build::configure()
        .build_client(services)
        .build_server(services)
        .codec_path("crate::codec::SmallProst")
        .emit_rerun_if_changed(false)
        .include_file("protos.rs")
        .btree_map(".")
        .skip_debug(redacted)
        .compile_fds(compiler.file_descriptor_set())?;
    Ok(())
}

fn find(dir: &Path, files: &mut Vec<PathBuf>) -> Result<(), Box<dyn Error>> {
    for entry in fs::read_dir(dir)? {
        let path = entry?.path();
        if path.is_dir() {
            find(&path, files)?;
        } else if path.extension().is_some_and(|e| e == "proto") {
            files.push(path);
        }
    }
    Ok(())
}
