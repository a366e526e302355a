//! The program as its users meet it: the real binary in projects of small kernels.

mod adversity;
mod cache;
mod calibrate;
mod clock_kills;
mod clocks;
mod command_line;
mod confinement;
mod devlog;
mod failures;
mod fake_gpu;
mod freshness;
mod history;
mod input;
mod interrupt;
mod kills;
mod lease;
mod nsight;
mod profile;
mod project;
mod recording;
mod reports;
mod repository;
mod run;
mod tuning;
mod verify;
mod without_clock_control;
