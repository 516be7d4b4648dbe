//! The workloads of `weft-bench pipes`, `stm`, `disk-random`, `spread` and `memory` by tokio's tasks.
//!
//!     tokio-peer pipes  processors=1 pairs=128 bytes=32768 capacity=4096 idle=0 total=268435456 [fifos=DIR]
//!     tokio-peer stm    processors=2 total=1000000
//!     tokio-peer disk-random processors=1 threads=64 reads=10000 file-bytes=1073741824 file=PATH
//!     tokio-peer spread processors=2 threads=1024 turns=20 steps=10000 counter=1
//!     tokio-peer memory threads=1024 buffer=4096
//!
//! On one processor they run on the current_thread runtime, on more on as many workers.

use std::collections::HashMap;
use std::future::Future;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::unix::pipe;
use tokio::runtime::Builder;
use tokio::sync::Barrier;
use tokio::task::{spawn_blocking, yield_now};

pub struct Point(HashMap<String, String>);

type Task = Pin<Box<dyn Future<Output = ()> + Send>>;

fn fail(what: impl std::fmt::Display) -> ! {
    eprintln!("tokio-peer: {what}");
    std::process::exit(1)
}

impl Point {
    fn text(&self, key: &str) -> &str {
        self.0.get(key).unwrap_or_else(|| fail(format!("{key} is missing")))
    }
    fn number(&self, key: &str) -> usize {
        self.text(key).parse().unwrap_or_else(|_| fail(format!("{key} is no number")))
    }
}

/// Does the workload of that name, or says that there is none.
pub fn run(workload: &str, arguments: impl Iterator<Item = String>) -> bool {
    let point = Point(arguments.filter_map(|a| a.split_once('=').map(|(k, v)| (k.into(), v.into()))).collect());
    match workload {
        "pipes" => on(point.number("processors"), pipes(point)),
        "stm" => on(point.number("processors"), stm(point)),
        "disk-random" => on(point.number("processors"), disk(point)),
        "spread" => on(point.number("processors"), spread(point)),
        "memory" => on(1, memory(point)),
        _ => return false,
    }
    true
}

fn on(processors: usize, work: impl Future<Output = ()> + Send + 'static) {
    if processors == 1 {
        Builder::new_current_thread().enable_io().enable_time().build().expect("the runtime starts").block_on(work)
    } else {
        let runtime = Builder::new_multi_thread().worker_threads(processors).enable_io().enable_time().build();
        runtime.expect("the runtime starts").block_on(async { tokio::spawn(work).await.expect("measured") })
    }
}

/// The clock runs from when the first is spawned until the last has ended.
async fn measure(operations: usize, tasks: Vec<Task>) {
    let (cpu, start) = (super::cpu_ns(), Instant::now());
    let running: Vec<_> = tasks.into_iter().map(tokio::spawn).collect();
    for task in running {
        if let Err(e) = task.await {
            fail(e)
        }
    }
    let (seconds, used) = (start.elapsed().as_secs_f64(), super::cpu_ns() - cpu);
    println!("{{\"operations\":{operations},\"seconds\":{seconds:.9},\"cpu_seconds\":{:.9}}}", used as f64 / 1e9);
}

extern "C" {
    fn fcntl(fd: i32, command: i32, argument: i32) -> i32;
}

const F_SETPIPE_SZ: i32 = 1031;

const O_DIRECT: i32 = if cfg!(target_arch = "aarch64") { 0o200000 } else { 0o40000 };

async fn pipes(point: Point) {
    let (pairs, bytes, idle) = (point.number("pairs"), point.number("bytes"), point.number("idle"));
    let rounds = (point.number("total") / (2 * bytes * pairs)).max(1);
    let capacity = point.number("capacity") as i32;
    let open = || {
        let (sender, receiver) = pipe::pipe().unwrap_or_else(|e| fail(e));
        if unsafe { fcntl(sender.as_raw_fd(), F_SETPIPE_SZ, capacity) } < 0 {
            fail(std::io::Error::last_os_error())
        }
        (sender, receiver)
    };
    for i in 0..idle {
        let path = format!("{}/{i}", point.text("fifos"));
        let mut fifo = pipe::OpenOptions::new().read_write(true).open_receiver(path).unwrap_or_else(|e| fail(e));
        tokio::spawn(async move { fifo.read_u8().await });
    }
    if idle > 0 {
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    let mut tasks: Vec<Task> = Vec::new();
    for _ in 0..pairs {
        let ((w1, r1), (w2, r2)) = (open(), open());
        for (mut out, mut into, first) in [(w1, r2, true), (w2, r1, false)] {
            tasks.push(Box::pin(async move {
                let (given, mut taken) = (vec![120u8; bytes], vec![0u8; bytes]);
                for _ in 0..rounds {
                    if first {
                        out.write_all(&given).await.unwrap_or_else(|e| fail(e));
                    }
                    into.read_exact(&mut taken).await.unwrap_or_else(|e| fail(e));
                    if !first {
                        out.write_all(&given).await.unwrap_or_else(|e| fail(e));
                    }
                }
            }));
        }
    }
    measure(rounds * 2 * bytes * pairs, tasks).await
}

/// A mutex around an integer.
async fn stm(point: Point) {
    let processors = point.number("processors");
    let share = (point.number("total") / processors).max(1);
    let shared = Arc::new(Mutex::new(0usize));
    let task = |shared: Arc<Mutex<usize>>| -> Task {
        Box::pin(async move {
            for _ in 0..share {
                *shared.lock().expect("not poisoned") += 1;
            }
        })
    };
    measure(share * processors, (0..processors).map(|_| task(shared.clone())).collect()).await;
    if *shared.lock().expect("not poisoned") != share * processors {
        fail("lost increments")
    }
}

/// Knuth's linear congruential generator, as in the other contenders. Several steps would be
/// made one by the compiler, which the empty instruction prevents.
fn next(x: u64) -> u64 {
    let mut y = x.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
    unsafe { std::arch::asm!("/* {0} */", inout(reg) y, options(nomem, nostack)) };
    y
}

/// Where a read past the page cache may put a block.
#[repr(align(4096))]
struct Block([u8; 4096]);

/// A read is a call on tokio's pool of OS threads, of which there are 512 at most: tokio has
/// nothing else for files.
async fn disk(point: Point) {
    let threads = point.number("threads");
    let (reads, blocks) = ((point.number("reads") / threads).max(1), point.number("file-bytes") as u64 / 4096);
    let direct = std::fs::OpenOptions::new().read(true).custom_flags(O_DIRECT).open(point.text("file"));
    let file = Arc::new(direct.unwrap_or_else(|e| fail(e)));
    let tasks = (0..threads).map(|i| -> Task {
        let file = file.clone();
        Box::pin(async move {
            let (mut state, mut block) = (next(i as u64 + 1), Box::new(Block([0; 4096])));
            for _ in 0..reads {
                state = next(state);
                let (file, at) = (file.clone(), (state >> 33) % blocks * 4096);
                let read = move || {
                    file.read_exact_at(&mut block.0, at).unwrap_or_else(|e| fail(e));
                    block
                };
                block = spawn_blocking(read).await.unwrap_or_else(|e| fail(e));
            }
        })
    });
    measure(reads * threads, tasks.collect()).await
}

async fn spread(point: Point) {
    let (threads, turns, steps) = (point.number("threads"), point.number("turns"), point.number("steps"));
    let counting = point.number("counter") > 0;
    let shared = Arc::new(Mutex::new(0usize));
    let sum = Arc::new(AtomicU64::new(0));
    let tasks = (0..threads).map(|i| -> Task {
        let (shared, sum) = (shared.clone(), sum.clone());
        Box::pin(async move {
            let mut a = i as u64 + 1;
            for _ in 0..turns {
                for _ in 0..steps {
                    a = next(a);
                }
                if counting {
                    *shared.lock().expect("not poisoned") += 1;
                }
                yield_now().await;
            }
            // So that the computation has a use.
            sum.fetch_add(a, Relaxed);
        })
    });
    measure(turns * threads, tasks.collect()).await
}

/// What this process may write to, or what of it is there, in bytes.
fn held(key: &str) -> f64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_else(|e| fail(e));
    let line = status.lines().find(|l| l.starts_with(key)).unwrap_or_else(|| fail(key));
    line.split_whitespace().nth(1).and_then(|n| n.parse::<f64>().ok()).unwrap_or_else(|| fail(key)) * 1024.0
}

async fn memory(point: Point) {
    let (threads, buffer) = (point.number("threads"), point.number("buffer"));
    let gate = Arc::new(Barrier::new(threads + 1));
    let before = (held("VmData:"), held("VmRSS:"));
    let (cpu, start) = (super::cpu_ns(), Instant::now());
    let ready = Arc::new(Barrier::new(threads + 1));
    for _ in 0..threads {
        let (ready, gate) = (ready.clone(), gate.clone());
        tokio::spawn(async move {
            let kept = vec![1u8; buffer];
            ready.wait().await;
            gate.wait().await;
            drop(kept);
        });
    }
    ready.wait().await;
    let (seconds, used) = (start.elapsed().as_secs_f64(), super::cpu_ns() - cpu);
    // Those that are ready have only been woken.
    yield_now().await;
    let after = (held("VmData:"), held("VmRSS:"));
    let each = |a: f64, b: f64| (b - a) / threads as f64;
    println!(
        "{{\"operations\":{threads},\"seconds\":{seconds:.9},\"cpu_seconds\":{:.9},\"virtual_bytes_per_thread\":{:.1},\"resident_bytes_per_thread\":{:.1}}}",
        used as f64 / 1e9,
        each(before.0, after.0),
        each(before.1, after.1)
    );
    std::process::exit(0)
}
