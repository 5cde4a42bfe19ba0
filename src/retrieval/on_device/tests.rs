use super::search::next_actions;
use super::*;
use crate::device::{self, Memory};
use crate::error::Error;
use crate::matrix::Matrix;
use crate::retrieval::exact::normals;

/// The adapter, with tensors of at most so many bytes; none where there is none.
fn adapter(tensor: u64) -> Option<Chosen> {
    let memory = Some(Memory { tensor, budget: None });
    match device::choose(Some("wgpu")) {
        Ok(chosen) => Some(Chosen { memory, ..chosen }),
        Err(error) => {
            eprintln!("skipped wgpu: {error}");
            None
        }
    }
}

fn searches(beta: Matrix, chosen: &Chosen) -> (Exact, OnDevice) {
    let actions = Arc::new(ActionEmbeddings::new(beta).unwrap());
    (Exact::new(Arc::clone(&actions)), OnDevice::new(&actions, chosen).unwrap())
}

#[test]
fn the_device_answers_as_the_host_does() {
    // A number of blocks, and a last one that is not whole.
    let Some(chosen) = adapter(1 << 16) else { return };
    let (host, device) = searches(normals(1, 1500, 12), &chosen);
    assert!(device.blocks.count() > 5 && device.blocks.queries() < 200);
    let mut latent = normals(2, 200, 12);
    latent.row_mut(7).fill(0.0);
    latent.row_mut(8).fill(1e-30);
    latent.row_mut(9)[3] = 1e35;
    let excluded: Vec<Vec<u32>> =
        (0..200).map(|i| (0..1500).step_by(2 + i % 9).collect()).collect();
    let rows: Vec<&[u32]> = excluded.iter().map(Vec::as_slice).collect();
    for slate_size in [1, 5, 100, 400] {
        for excluded in [None, Some(rows.as_slice())] {
            let queries = Queries { latent: &latent, slate_size, excluded };
            assert_eq!(device.search(queries).unwrap(), host.search(queries).unwrap());
        }
    }
}

#[test]
fn shares_grow_as_lists_have_room() {
    for (slate_size, num_actions, most) in
        [(1, 2_000_000, 3), (5, 2_230_000, 4), (100, 2_230_000, 6), (3000, 1 << 20, 5)]
    {
        let room = ROOM.0.max(ROOM.1 * slate_size);
        let (mut merged, mut shares) = (0, 0);
        while merged < num_actions {
            let next = next_actions(merged, room, slate_size, 1.0);
            if merged > 0 {
                let expected = slate_size as f64 * next as f64 / merged as f64;
                assert!(
                    expected + slate_size as f64 <= 0.8 * room as f64,
                    "{slate_size}: {expected}"
                );
            }
            merged += next;
            shares += 1;
        }
        assert!(shares <= most, "{slate_size}: {shares} shares");
    }
}

#[test]
fn what_does_not_fit_into_the_budget_is_uploaded_and_gives_the_same() {
    let Some(mut chosen) = adapter(1 << 16) else { return };
    chosen.memory = Some(Memory { tensor: 1 << 16, budget: Some(1 << 18) });
    let (host, device) = searches(normals(1, 4000, 20), &chosen);
    let latent = normals(2, 30, 20);
    let queries = Queries { latent: &latent, slate_size: 10, excluded: None };
    assert_eq!(device.search(queries).unwrap(), host.search(queries).unwrap());

    chosen.memory = Some(Memory { tensor: 1 << 16, budget: Some(100) });
    let error = OnDevice::new(host.actions(), &chosen).unwrap_err().to_string();
    assert!(error.contains("--device-memory"), "{error}");
    chosen.memory = None;
    assert!(OnDevice::new(host.actions(), &chosen).unwrap_err().to_string().contains("no GPU"));
}

#[test]
fn what_cannot_be_answered_is_refused_as_on_the_host() {
    let Some(chosen) = adapter(1 << 16) else { return };
    let (_, device) = searches(normals(1, 10, 4), &chosen);
    let search = |latent: &Matrix, slate_size, excluded| {
        device.search(Queries { latent, slate_size, excluded }).map(|found| found.len())
    };
    let latent = normals(2, 2, 4);
    let excluded: [&[u32]; 2] = [&[], &[1, 5]];
    let error = search(&latent, 9, Some(&excluded)).unwrap_err();
    assert!(matches!(error, Error::SlateTooLarge { available: 8, .. }), "{error}");
    assert_eq!(search(&latent, 8, Some(&excluded)).unwrap(), 2);
    assert!(matches!(search(&normals(2, 2, 5), 2, None), Err(Error::Shape { .. })));
    // Numbers of no action exclude nothing.
    let beyond: [&[u32]; 2] = [&[3, u32::MAX], &[10]];
    let queries = Queries { latent: &latent, slate_size: 8, excluded: Some(&beyond) };
    assert_eq!(device.search(queries).unwrap(), device.host.search(queries).unwrap());
    let mut wrong = latent.clone();
    wrong.row_mut(1)[2] = f32::NAN;
    assert!(matches!(search(&wrong, 2, None), Err(Error::NotFinite { row: 1, .. })));
    assert_eq!(search(&Matrix::new(Vec::new(), 4).unwrap(), 2, None).unwrap(), 0);
}
