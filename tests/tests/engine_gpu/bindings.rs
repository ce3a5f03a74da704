//! What an executor keeps of programs: bindings, which go when their program goes, and of which a software
//! driver bears only so many.

use crate::device;
use twoclock_shaders::caps::DeviceKind;
use twoclock_shaders::executor::{Executor, ExecutorError};
use twoclock_shaders::gpu::WgpuExecutor;
use twoclock_shaders::kernels::residual::{ResidualParams, dispatch};
use twoclock_shaders::program::{Command, CountId, Program, Slice, StepArgs};

/// Dispatches of a program.
const MANY: u32 = 1000;

/// More programs than a software driver bears.
const TOO_MANY: usize = 60;

/// Of dispatches no two of which are alike, or of one over and over.
fn program(y: Slice, x: Slice, alike: bool) -> Program {
    let dispatches = (1..=MANY).map(|i| {
        let dim4 = if alike { MANY } else { i };
        dispatch(ResidualParams { dim4 }, CountId(0), y, x)
    });
    Program::new("many", dispatches.map(Command::from).collect())
}

/// Prepares it, and runs nothing of it.
fn launch(executor: &mut WgpuExecutor, program: &Program) -> Result<(), ExecutorError> {
    let args = StepArgs {
        upload: None,
        counts: vec![0],
    };
    executor.launch(program, &args).map(|_| ())
}

#[test]
fn what_is_kept_of_programs_is_bounded_and_goes_with_them() {
    let mut executor = device();
    let bytes = 16 * u64::from(MANY);
    let [y, x] = ["y", "x"].map(|label| {
        let buffer = executor.create_buffer(label, bytes).expect("memory");
        Slice::whole(buffer, bytes)
    });
    for _ in 0..TOO_MANY {
        launch(&mut executor, &program(y, x, false)).expect("those before are gone");
    }
    let alike: Vec<_> = (0..TOO_MANY).map(|_| program(y, x, true)).collect();
    for program in &alike {
        launch(&mut executor, program).expect("what is alike is kept once");
    }
    if executor.caps().kind != DeviceKind::Cpu {
        return;
    }
    // More than a driver bears in all, all of them alive: those before are let go, and come again.
    let kept: Vec<_> = (0..TOO_MANY).map(|_| program(y, x, false)).collect();
    for program in kept.iter().chain(&kept[..1]) {
        launch(&mut executor, program).expect("others can be prepared again");
    }
    let dispatches = kept.iter().flat_map(|program| program.commands().iter());
    let alone = Program::new("too many", dispatches.cloned().collect());
    // Alike, but for where they write.
    let bytes = 16 * u64::from(MANY);
    let places: Vec<_> = (0..TOO_MANY)
        .map(|_| executor.create_buffer("another", bytes).expect("memory"))
        .collect();
    let commands = alone.commands().iter().enumerate().map(|(i, command)| {
        let Command::Dispatch(dispatch) = command else {
            unreachable!("only dispatches");
        };
        let mut dispatch = dispatch.clone();
        dispatch.bindings[0] = Slice::whole(places[i / MANY as usize], bytes);
        Command::Dispatch(dispatch)
    });
    let alone = Program::new("too many", commands.collect());
    let refused = launch(&mut executor, &alone).expect_err("a driver would fall");
    let named =
        matches!(&refused, ExecutorError::TooManyBindings { program, .. } if program == "too many");
    assert!(named, "{refused}");
    launch(&mut executor, &kept[0]).expect("others go on");
}
