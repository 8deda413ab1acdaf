//! What the program calls instead of the C library: each looks whether the call could be ours by its arguments, and passes it on if not.

mod files;
mod memory;
mod streams;
