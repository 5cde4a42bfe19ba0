use super::*;
use crate::device::{self, Memory};
use crate::error::Error;
use crate::matrix::Matrix;
use crate::retrieval::exact::normals;

/// A CPU in the place of a GPU, whose tensors have at most so many bytes.
fn pretended(tensor: u64) -> Chosen {
    let memory = Some(Memory { tensor, budget: None });
    Chosen { memory, ..device::choose(Some(device::compiled()[0])).unwrap() }
}

fn searches(beta: Matrix, chosen: &Chosen) -> (Exact, OnDevice) {
    let actions = Arc::new(ActionEmbeddings::new(beta).unwrap());
    (Exact::new(Arc::clone(&actions)), OnDevice::new(&actions, chosen).unwrap())
}

#[test]
fn the_device_answers_as_the_host_does() {
    // A number of blocks, and a last one that is not whole.
    let (host, device) = searches(normals(1, 1500, 12), &pretended(1 << 16));
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
fn products_are_offered_to_their_queries() {
    let mut found: Vec<Found> =
        (0..3).map(|_| Found { best: TopKeys::new(2, 0.0), threshold: f32::NAN }).collect();
    let places = vec![[2, 7], [0, 4], [2, 1], [0, 5], [2, 3], [0, 6]];
    offer(&(places, vec![0.5, 1.0, 0.25, 3.0, 0.75, 2.0]), &mut found);
    let kept = found.iter().map(|found| {
        let mut kept: Vec<(f32, u32)> =
            found.best.keys.iter().map(|key| crate::retrieval::best::unpack(*key)).collect();
        kept.sort_unstable_by(|a, b| b.0.total_cmp(&a.0));
        (kept, found.threshold)
    });
    let kept: Vec<_> = kept.collect();
    assert_eq!(kept[0], (vec![(3.0, 5), (2.0, 6)], 2.0));
    assert!(kept[1].0.is_empty() && kept[1].1.is_nan());
    assert_eq!(kept[2], (vec![(0.75, 3), (0.5, 7)], 0.5));
}

#[test]
fn what_does_not_fit_into_the_budget_is_uploaded_and_gives_the_same() {
    let mut chosen = pretended(1 << 16);
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
    let (_, device) = searches(normals(1, 10, 4), &pretended(1 << 16));
    let search = |latent: &Matrix, slate_size, excluded| {
        device.search(Queries { latent, slate_size, excluded }).map(|found| found.len())
    };
    let latent = normals(2, 2, 4);
    let excluded: [&[u32]; 2] = [&[], &[1, 5]];
    let error = search(&latent, 9, Some(&excluded)).unwrap_err();
    assert!(matches!(error, Error::SlateTooLarge { available: 8, .. }), "{error}");
    assert_eq!(search(&latent, 8, Some(&excluded)).unwrap(), 2);
    assert!(matches!(search(&normals(2, 2, 5), 2, None), Err(Error::Shape { .. })));
    let mut wrong = latent.clone();
    wrong.row_mut(1)[2] = f32::NAN;
    assert!(matches!(search(&wrong, 2, None), Err(Error::NotFinite { row: 1, .. })));
    assert_eq!(search(&Matrix::new(Vec::new(), 4).unwrap(), 2, None).unwrap(), 0);
}
