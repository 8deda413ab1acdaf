//! The benchmark of lanes: what each part of one brings to programs with deadlines, and what it costs the others.
//!
//! From the bottom: `stress` (what runs beside), `ffmpeg` (a real decoder), `watched` (who takes a decoder's frames, and when), `child` (this program
//! again, as one of those that are measured), `sections` (questions and tables).

pub mod bench;
pub mod child;
pub mod ffmpeg;
pub mod sections;
pub mod stress;
pub mod watched;
