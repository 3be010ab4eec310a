//! What the product must do, with its real binaries, its real clients and a provider that misbehaves on command.
//!
//! One module per numbered part of the product's description; `bad_input` and `clients` besides.

mod part01_workspace;
