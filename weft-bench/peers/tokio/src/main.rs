//! Tokio tasks beside Weft's threads: how long a switch takes (yield), what a
//! sleeping task costs (timers), and how much memory one occupies.
//!
//!     tokio-peer yield  --threads N --switches M [--multi WORKERS]
//!     tokio-peer timers --threads N [--sleep-ms S] [--multi WORKERS]
//!
//! and the workloads of figures.rs. Prints one JSON object on one line. Without `--multi` the tasks run on the
//! current_thread runtime, which is tokio's fastest for this. The phases are
//! those of `weft-bench yield` and `weft-bench timers`; weft-bench/README.md
//! explains them.

mod figures;

use std::alloc::{GlobalAlloc, Layout, System};
use std::future::Future;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicUsize, Ordering::Relaxed};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::runtime::{Builder, Runtime};
use tokio::sync::Notify;
use tokio::task::yield_now;

/// Counts what is allocated and not yet freed: the figure that stands beside
/// the live heap of a garbage-collected program. Switching allocates nothing,
/// so the count costs nothing where time is measured, and an uncontended add
/// where tasks are created.
struct Counting;

static LIVE: AtomicI64 = AtomicI64::new(0);

unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        LIVE.fetch_add(layout.size() as i64, Relaxed);
        System.alloc(layout)
    }
    unsafe fn dealloc(&self, p: *mut u8, layout: Layout) {
        LIVE.fetch_sub(layout.size() as i64, Relaxed);
        System.dealloc(p, layout)
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

struct Options {
    command: String,
    threads: usize,
    switches: usize,
    sleep: Duration,
    multi: Option<usize>,
}

fn usage() -> ! {
    eprintln!("usage: tokio-peer yield|timers --threads N [--switches M] [--sleep-ms S] [--multi WORKERS]");
    std::process::exit(2)
}

fn options() -> Options {
    let mut arguments = std::env::args().skip(1);
    let mut o = Options {
        command: arguments.next().unwrap_or_else(|| usage()),
        threads: 1000,
        switches: 1_000_000,
        sleep: Duration::from_millis(1000),
        multi: None,
    };
    while let Some(flag) = arguments.next() {
        let value = arguments.next().and_then(|v| v.parse::<usize>().ok());
        match (flag.as_str(), value) {
            ("--threads", Some(n)) if n > 0 => o.threads = n,
            ("--switches", Some(n)) if n > 0 => o.switches = n,
            ("--sleep-ms", Some(n)) => o.sleep = Duration::from_millis(n as u64),
            ("--multi", Some(n)) if n > 0 => o.multi = Some(n),
            _ => usage(),
        }
    }
    o
}

fn main() {
    let mut arguments = std::env::args().skip(1);
    if arguments.next().is_some_and(|workload| figures::run(&workload, arguments)) {
        return;
    }
    let o = options();
    let runtime = match o.multi {
        None => Builder::new_current_thread().enable_time().build(),
        Some(workers) => Builder::new_multi_thread()
            .worker_threads(workers)
            .enable_time()
            .build(),
    }
    .expect("the runtime starts");
    match o.command.as_str() {
        "yield" => measure_yield(&o, &runtime),
        "timers" => measure_timers(&o, &runtime),
        _ => usage(),
    }
}

/// Runs the measuring code where it belongs: inside `block_on` on the
/// current_thread runtime, as a task of its own on the multi_thread one (whose
/// `block_on` thread would otherwise stand outside the workers).
fn drive(o: &Options, runtime: &Runtime, measurement: impl Future<Output = ()> + Send + 'static) {
    if o.multi.is_some() {
        runtime.block_on(async {
            tokio::spawn(measurement).await.expect("measured");
        })
    } else {
        runtime.block_on(measurement)
    }
}

#[repr(C)]
struct Timespec {
    seconds: i64,
    nanoseconds: i64,
}

extern "C" {
    fn clock_gettime(clock: i32, time: *mut Timespec) -> i32;
}

const CLOCK_PROCESS_CPUTIME_ID: i32 = 2;

/// Processor time of the whole process, in nanoseconds.
fn cpu_ns() -> u64 {
    let mut t = Timespec { seconds: 0, nanoseconds: 0 };
    unsafe { clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &mut t) };
    t.seconds as u64 * 1_000_000_000 + t.nanoseconds as u64
}

struct Yielding {
    held: AtomicUsize,
    running: AtomicBool,
    left: AtomicUsize,
    finished: Notify,
}

/// Every task first circles in the hold loop, so that memory is measured while
/// all of them sit in the run queue; then each yields its share. They finish
/// together, so all are there during the whole measurement.
fn measure_yield(o: &Options, runtime: &Runtime) {
    let (threads, workers) = (o.threads, o.multi.unwrap_or(1));
    let share = o.switches.div_ceil(threads);
    drive(o, runtime, async move {
        let state = Arc::new(Yielding {
            held: AtomicUsize::new(0),
            running: AtomicBool::new(false),
            left: AtomicUsize::new(threads),
            finished: Notify::new(),
        });
        let before = LIVE.load(Relaxed);
        for _ in 0..threads {
            let s = state.clone();
            tokio::spawn(async move {
                s.held.fetch_add(1, Relaxed);
                while !s.running.load(Relaxed) {
                    yield_now().await;
                }
                for _ in 0..share {
                    yield_now().await;
                }
                if s.left.fetch_sub(1, Relaxed) == 1 {
                    s.finished.notify_one();
                }
            });
        }
        while state.held.load(Relaxed) < threads {
            yield_now().await;
        }
        let live = LIVE.load(Relaxed) - before;
        let (cpu, start) = (cpu_ns(), Instant::now());
        state.running.store(true, Relaxed);
        state.finished.notified().await;
        let (elapsed, used) = (start.elapsed().as_nanos() as f64, (cpu_ns() - cpu) as f64);
        let total = (share * threads) as f64;
        println!(
            "{{\"threads\":{threads},\"workers\":{workers},\"switches\":{},\"ns_per_switch\":{:.3},\"cpu_ns_per_switch\":{:.3},\"live_bytes_per_thread\":{:.2}}}",
            share * threads,
            elapsed / total,
            used / total,
            live as f64 / threads as f64
        );
    });
}

struct Sleeping {
    asleep: AtomicUsize,
    woken: AtomicUsize,
    all_asleep: Notify,
    all_woken: Notify,
}

/// All tasks sleep until one common deadline, so that all are asleep at once
/// and all wake at once.
fn measure_timers(o: &Options, runtime: &Runtime) {
    let (threads, workers, sleep) = (o.threads, o.multi.unwrap_or(1), o.sleep);
    drive(o, runtime, async move {
        let state = Arc::new(Sleeping {
            asleep: AtomicUsize::new(0),
            woken: AtomicUsize::new(0),
            all_asleep: Notify::new(),
            all_woken: Notify::new(),
        });
        let before = LIVE.load(Relaxed);
        let (cpu, start) = (cpu_ns(), Instant::now());
        let deadline = start + sleep;
        for _ in 0..threads {
            let s = state.clone();
            tokio::spawn(async move {
                if s.asleep.fetch_add(1, Relaxed) + 1 == threads {
                    s.all_asleep.notify_one();
                }
                tokio::time::sleep_until(deadline.into()).await;
                if s.woken.fetch_add(1, Relaxed) + 1 == threads {
                    s.all_woken.notify_one();
                }
            });
        }
        state.all_asleep.notified().await;
        let (created, cpu_created) = (start.elapsed(), cpu_ns() - cpu);
        let live = LIVE.load(Relaxed) - before;
        let at_once = threads - state.woken.load(Relaxed);
        let cpu = cpu_ns();
        state.all_woken.notified().await;
        let (wake, cpu_wake) = (deadline.elapsed(), cpu_ns() - cpu);
        let n = threads as f64;
        println!(
            "{{\"threads\":{threads},\"workers\":{workers},\"create_ns_per_thread\":{:.2},\"wake_ns_per_thread\":{:.2},\"total_ns_per_thread\":{:.2},\"cpu_ns_per_thread\":{:.2},\"bytes_per_thread\":{:.2},\"asleep_at_once\":{at_once}}}",
            created.as_nanos() as f64 / n,
            wake.as_nanos() as f64 / n,
            (created + wake).as_nanos() as f64 / n,
            (cpu_created + cpu_wake) as f64 / n,
            live as f64 / n
        );
    });
}
