//! What moving files promises, with processes that are killed, stopped and disturbed at every step.
//!
//! Tier and file are on one file system here, which needs no rights: planning refuses that, moving does not mind. What is killed is an *act*: an
//! ignored test that another one starts as a process.

mod crashes;
mod disturbed;
mod stage;
mod states;
