//! Compiles rules about system calls into a seccomp program.
//!
//! The program kills the process at a call of another architecture (32-bit entry points, x32), finds the call's number
//! by binary search, and compares arguments if a rule requires it. It does not decide which calls are allowed.

use std::collections::BTreeMap;

/// What the kernel does with a system call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Verdict {
    Allow,
    /// The call is not made; it answers this error. Zero answers success.
    Errno(i32),
    /// The supervisor decides.
    Notify,
}

/// A condition on the low 32 bits of an argument. Every compared argument is an `int` or a set of flags in the low
/// half, so the high half does not matter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Test {
    argument: u8,
    mask: u32,
    value: u32,
}

/// The argument has this value.
pub(super) fn is(argument: u8, value: u32) -> Test {
    Test { argument, mask: u32::MAX, value }
}

/// The argument has none of these bits.
pub(super) fn without(argument: u8, bits: u32) -> Test {
    Test { argument, mask: bits, value: 0 }
}

/// The bits of the argument under the mask have this value.
pub(super) fn masked(argument: u8, mask: u32, value: u32) -> Test {
    Test { argument, mask, value }
}

/// The rules of one system call: the first whose conditions all hold decides.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Rules {
    pub(super) rules: Vec<(Vec<Test>, Verdict)>,
    pub(super) otherwise: Verdict,
}

impl Rules {
    pub(super) fn always(verdict: Verdict) -> Self {
        Self { rules: Vec::new(), otherwise: verdict }
    }
}

#[cfg(target_arch = "x86_64")]
const AUDIT_ARCH: u32 = 0xc000_003e;
#[cfg(target_arch = "aarch64")]
const AUDIT_ARCH: u32 = 0xc000_00b7;
/// On x86-64 a number with this bit is an x32 call; nowhere is such a number a call of ours.
const FOREIGN_NUMBERS: u32 = 0x4000_0000;

const OFFSET_NUMBER: u32 = 0;
const OFFSET_ARCH: u32 = 4;
const OFFSET_ARGUMENTS: u32 = 16;

const LOAD: u16 = (libc::BPF_LD | libc::BPF_W | libc::BPF_ABS) as u16;
const AND: u16 = (libc::BPF_ALU | libc::BPF_AND | libc::BPF_K) as u16;
const JUMP: u16 = (libc::BPF_JMP | libc::BPF_JA) as u16;
const IF_EQUAL: u16 = (libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K) as u16;
const IF_AT_LEAST: u16 = (libc::BPF_JMP | libc::BPF_JGE | libc::BPF_K) as u16;
const RETURN: u16 = (libc::BPF_RET | libc::BPF_K) as u16;

fn step(code: u16, k: u32) -> libc::sock_filter {
    libc::sock_filter { code, jt: 0, jf: 0, k }
}

fn branch(code: u16, k: u32, jt: u8, jf: u8) -> libc::sock_filter {
    libc::sock_filter { code, jt, jf, k }
}

fn answer(verdict: Verdict) -> libc::sock_filter {
    let value = match verdict {
        Verdict::Allow => libc::SECCOMP_RET_ALLOW,
        Verdict::Notify => libc::SECCOMP_RET_USER_NOTIF,
        Verdict::Errno(errno) => libc::SECCOMP_RET_ERRNO | (errno as u32 & libc::SECCOMP_RET_DATA),
    };
    step(RETURN, value)
}

/// Compiles. Calls that are not named answer `refusal`; numbers above `last_known` answer `ENOSYS`, because programs
/// that try a newer call know what to do without it.
pub(super) fn compile(calls: &BTreeMap<u32, Rules>, refusal: Verdict, last_known: u32) -> Vec<libc::sock_filter> {
    let kill = || step(RETURN, libc::SECCOMP_RET_KILL_PROCESS);
    let mut program = vec![
        step(LOAD, OFFSET_ARCH),
        branch(IF_EQUAL, AUDIT_ARCH, 1, 0),
        kill(),
        step(LOAD, OFFSET_NUMBER),
        branch(IF_AT_LEAST, FOREIGN_NUMBERS, 0, 1),
        kill(),
    ];
    let (refused, unknown) = (Rules::always(refusal), Rules::always(Verdict::Errno(libc::ENOSYS)));
    let mut ranges: Vec<(u32, &Rules)> = Vec::new();
    let mut begin = |from: u32, rules| {
        if ranges.last().is_none_or(|(_, last)| *last != rules) {
            ranges.push((from, rules));
        }
    };
    for number in 0..=last_known {
        begin(number, calls.get(&number).unwrap_or(&refused));
    }
    begin(last_known + 1, &unknown);
    bisect(&ranges, &mut program);
    program
}

fn bisect(ranges: &[(u32, &Rules)], program: &mut Vec<libc::sock_filter>) {
    match ranges {
        [] => {}
        [(_, rules)] => leaf(rules, program),
        _ => {
            let (low, high) = ranges.split_at(ranges.len() / 2);
            let mut left = Vec::new();
            bisect(low, &mut left);
            // A conditional jump reaches 255 steps, an unconditional one everywhere.
            program.push(branch(IF_AT_LEAST, high[0].0, 0, 1));
            program.push(step(JUMP, left.len() as u32));
            program.append(&mut left);
            bisect(high, program);
        }
    }
}

fn leaf(rules: &Rules, program: &mut Vec<libc::sock_filter>) {
    for (tests, verdict) in &rules.rules {
        // Each test is three steps; a test that fails jumps behind the rule's verdict.
        for (at, test) in tests.iter().enumerate() {
            let left = tests.len() - at - 1;
            program.push(step(LOAD, OFFSET_ARGUMENTS + 8 * u32::from(test.argument)));
            program.push(step(AND, test.mask));
            program.push(branch(IF_EQUAL, test.value, 0, (3 * left + 1) as u8));
        }
        program.push(answer(*verdict));
    }
    program.push(answer(rules.otherwise));
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs a program as the kernel would.
    fn run(program: &[libc::sock_filter], arch: u32, number: u32, arguments: [u64; 6]) -> u32 {
        let (mut at, mut value) = (0usize, 0u32);
        loop {
            let now = program[at];
            at += 1;
            match now.code {
                LOAD => {
                    value = match now.k {
                        OFFSET_NUMBER => number,
                        OFFSET_ARCH => arch,
                        k => arguments[((k - OFFSET_ARGUMENTS) / 8) as usize] as u32,
                    }
                }
                AND => value &= now.k,
                JUMP => at += now.k as usize,
                IF_EQUAL => at += usize::from(if value == now.k { now.jt } else { now.jf }),
                IF_AT_LEAST => at += usize::from(if value >= now.k { now.jt } else { now.jf }),
                RETURN => return now.k,
                other => panic!("{other}"),
            }
        }
    }

    #[test]
    fn every_number_gets_its_verdict() {
        let mut calls = BTreeMap::new();
        for number in (0..400).filter(|n| n % 3 == 0) {
            calls.insert(number, Rules::always(Verdict::Allow));
        }
        let tests = vec![is(0, 2), without(1, 0x30), masked(2, 0xf, 1)];
        calls.insert(
            41,
            Rules {
                rules: vec![(tests, Verdict::Allow), (vec![is(0, 9)], Verdict::Notify)],
                otherwise: Verdict::Errno(97),
            },
        );
        let program = compile(&calls, Verdict::Errno(1), 450);
        let at = |number, arguments| run(&program, AUDIT_ARCH, number, arguments);
        let refused = libc::SECCOMP_RET_ERRNO | 1;
        for number in (0..451).filter(|n| *n != 41) {
            let expected = if number < 400 && number % 3 == 0 { libc::SECCOMP_RET_ALLOW } else { refused };
            assert_eq!(at(number, [0; 6]), expected, "{number}");
        }
        assert_eq!(at(451, [0; 6]), libc::SECCOMP_RET_ERRNO | libc::ENOSYS as u32);
        for (arguments, expected) in [
            ([2, 0, 1, 0, 0, 0], libc::SECCOMP_RET_ALLOW),
            ([2 | 1 << 40, 0xf, 0x7f1, 0, 0, 0], libc::SECCOMP_RET_ALLOW),
            ([2, 0x10, 1, 0, 0, 0], libc::SECCOMP_RET_ERRNO | 97),
            ([2, 0, 2, 0, 0, 0], libc::SECCOMP_RET_ERRNO | 97),
            ([9, 0x10, 2, 0, 0, 0], libc::SECCOMP_RET_USER_NOTIF),
        ] {
            assert_eq!(at(41, arguments), expected, "{arguments:?}");
        }
        assert_eq!(run(&program, 0x4000_0003, 0, [0; 6]), libc::SECCOMP_RET_KILL_PROCESS, "32-bit");
        assert_eq!(at(FOREIGN_NUMBERS, [0; 6]), libc::SECCOMP_RET_KILL_PROCESS, "x32");
    }
}
