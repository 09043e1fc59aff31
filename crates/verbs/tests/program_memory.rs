//! Memory of programs that may unmap it, and shared receive queues that are asked how they are.

mod adapters;

use adapters::joined_by_memory;
use roxe_verbs::{
    AccessFlags, CompletionStatus, ConnectOptions, Data, LKey, ProgramRange, SendOperation,
    SendRequest, ServiceType, Sge,
};

const PAGE: usize = 4096;

/// A page of the kernel's, which may be unmapped.
fn page() -> ProgramRange {
    let (flags, rights) =
        (libc::MAP_PRIVATE | libc::MAP_ANONYMOUS, libc::PROT_READ | libc::PROT_WRITE);
    // SAFETY: a new page, of which nobody else knows.
    let start = unsafe { libc::mmap(std::ptr::null_mut(), PAGE, rights, flags, -1, 0) };
    assert_ne!(start, libc::MAP_FAILED);
    ProgramRange { start: start.addr() as u64, len: PAGE as u64, va: 0x1000 }
}

fn unmap(range: ProgramRange) {
    let start = std::ptr::with_exposed_provenance_mut(range.start as usize);
    // SAFETY: nobody has a reference to it.
    assert_eq!(unsafe { libc::munmap(start, PAGE) }, 0);
}

#[test]
fn a_region_of_a_program_is_changed_under_its_key_and_may_go() {
    let [one, other] = joined_by_memory();
    let ends = [&one, &other].map(|context| {
        let cq = context.create_cq(16).unwrap();
        (context.default_pd().create_qp(ServiceType::Rc, &cq).build().unwrap(), cq)
    });
    let options = ConnectOptions::default();
    ends[0].0.connect(&ends[1].0.endpoint().unwrap(), &options).unwrap();
    ends[1].0.connect(&ends[0].0.endpoint().unwrap(), &options).unwrap();
    let send = |key: LKey| {
        let sges = [Sge { va: 0x1000, len: 8, l_key: key }];
        ends[0].0.post_sends(|post| {
            post(&SendRequest {
                wr_id: 1,
                operation: SendOperation::Send,
                data: Data::Regions(&sges),
                signaled: true,
                solicited: false,
                fence: false,
                target: None,
            })
        })
    };
    let ended = || loop {
        if let Some(completion) = ends[0].1.poll_one() {
            return completion.status;
        }
    };
    let there = page();
    // SAFETY: nobody minds what becomes of these pages.
    let mut region =
        unsafe { one.default_pd().register_program(there, AccessFlags::LOCAL_WRITE) }.unwrap();
    let key = region.l_key();
    ends[1]
        .0
        .post_receives(|post| post(&roxe_verbs::ReceiveRequest { wr_id: 1, sges: &[] }))
        .unwrap();

    let gone = page();
    // SAFETY: as above.
    unsafe { region.change(Some(gone), None, None) }.unwrap();
    assert_eq!(region.l_key(), key);
    unmap(gone);
    unmap(there);
    send(key).unwrap();
    assert_eq!(ended(), CompletionStatus::LocalProtectionError);
    assert!(region.deregister().is_ok());
}

#[test]
fn a_shared_receive_queue_says_how_it_is() {
    let [one, _other] = joined_by_memory();
    let queue = one.default_pd().create_srq(8, 2).unwrap();
    queue.modify(Some(16), None).unwrap();
    let info = queue.query();
    assert_eq!((info.depth, info.max_sge, info.limit), (16, 2, 0));
}
