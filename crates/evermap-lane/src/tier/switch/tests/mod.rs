//! Tests of moving files, with processes that are killed, stopped and disturbed at every step.
//!
//! Tier and file share one file system, which needs no privileges. Planning would refuse that;
//! moving does not check it. The processes to be killed run an ignored test as a helper, started by
//! another test.

mod crashes;
mod disturbed;
mod fixture;
mod states;
