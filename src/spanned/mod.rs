//! TOML as a tree in which every key and every value knows its place, and readers that collect diagnostics.
//! Knows no schema.

pub mod fields;
mod node;

pub use fields::Fields;
pub use node::{Entry, Kind, Node, Table, parse, parse_value};
