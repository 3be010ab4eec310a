//! Makes cargo notice a new migration: `sqlx::migrate!` reads the folder, cargo does not know.
fn main() {
    println!("cargo:rerun-if-changed=../migrations");
}
