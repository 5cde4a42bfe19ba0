//! Public data sets that are read as they are published: names of files → columns.

use serde::Serialize;

/// A public data set.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Known {
    /// Its name in this crate.
    pub name: &'static str,
    /// A description.
    pub title: &'static str,
    /// The page where it is published, with its licence and papers.
    pub page: &'static str,
    /// The terms of use.
    pub licence: &'static str,
    /// Its size, as published.
    pub size: &'static str,
    /// The files to download; any one of them is enough and is read without unpacking it.
    pub download: &'static [&'static str],
    /// Names of the file of interactions, the preferred one first.
    pub files: &'static [&'static str],
    /// The file's columns, in order; a file without a header is read with these names.
    pub columns: &'static [&'static str],
    /// True if the file's first row names its columns.
    pub header: bool,
    /// The column of user ids.
    pub user: &'static str,
    /// The column of item ids.
    pub item: &'static str,
    /// The column of ratings, if any.
    pub rating: Option<&'static str>,
    /// The column and value of the rows that count as interactions; without it all rows count.
    pub only: Option<(&'static str, &'static str)>,
}

const MOVIELENS_CSV: Known = Known {
    name: "movielens-25m",
    title: "MovieLens 25M, ratings of movies with 0.5 to 5 stars (Harper & Konstan 2015)",
    page: "https://grouplens.org/datasets/movielens/25m/",
    licence: "research; redistribution under the same conditions; see the README within",
    size: "25 000 095 ratings, 162 541 users, 62 423 movies",
    download: &["ml-25m.zip"],
    files: &["ratings.csv"],
    columns: &["userId", "movieId", "rating", "timestamp"],
    header: true,
    user: "userId",
    item: "movieId",
    rating: Some("rating"),
    only: None,
};

/// `user::item::rating::time`: polars separates at single bytes, so every second field is the empty
/// one between two colons.
const MOVIELENS_DAT: Known = Known {
    name: "movielens-1m",
    title: "MovieLens 1M, ratings of movies with 1 to 5 stars (Harper & Konstan 2015)",
    page: "https://grouplens.org/datasets/movielens/1m/",
    size: "1 000 209 ratings, 6 040 users, 3 706 movies",
    download: &["ml-1m.zip"],
    files: &["ratings.dat"],
    columns: &["userId", "_1", "movieId", "_3", "rating", "_5", "timestamp"],
    header: false,
    ..MOVIELENS_CSV
};

/// The known data sets; the data sets of the paper's Table 2 come first.
pub const KNOWN: &[Known] = &[
    MOVIELENS_CSV,
    Known {
        name: "twitch",
        title: "Twitch, who watched whose stream in 43 days (Rappaz, McAuley & Aberer 2021)",
        page: "https://cseweb.ucsd.edu/~jmcauley/datasets.html#twitch",
        licence: "not stated; cite the paper",
        size: "full: 15.5 M users, 465 000 streamers, 124 M rows; 100k: 100 000 users, 162 600 \
               streamers, 3 M rows",
        download: &["full_a.csv.gz", "100k_a.csv"],
        files: &["full_a.csv", "full_a.csv.gz", "100k_a.csv", "100k_a.csv.gz"],
        columns: &["user", "stream", "streamer", "start", "stop"],
        header: false,
        user: "user",
        item: "streamer",
        rating: None,
        only: None,
    },
    Known {
        name: "goodreads",
        title: "GoodReads, the books on public shelves (Wan & McAuley 2018)",
        page: "https://mengtingwan.github.io/data/goodreads.html",
        licence: "academic use only; cite the papers",
        size: "228 648 342 rows, 876 145 users, 2 360 650 books",
        download: &["goodreads_interactions.csv"],
        files: &["goodreads_interactions.csv", "goodreads_interactions.csv.gz"],
        columns: &["user_id", "book_id", "is_read", "rating", "is_reviewed"],
        header: true,
        user: "user_id",
        item: "book_id",
        rating: Some("rating"),
        only: Some(("is_read", "1")),
    },
    Known {
        name: "movielens-32m",
        title: "MovieLens 32M, ratings of movies with 0.5 to 5 stars (Harper & Konstan 2015)",
        page: "https://grouplens.org/datasets/movielens/32m/",
        size: "32 000 204 ratings, 200 948 users, 87 585 movies",
        download: &["ml-32m.zip"],
        ..MOVIELENS_CSV
    },
    Known {
        name: "movielens-latest",
        title: "MovieLens latest and latest-small, which change (Harper & Konstan 2015)",
        page: "https://grouplens.org/datasets/movielens/latest/",
        size: "small: 100 836 ratings, 610 users, 9 742 movies",
        download: &["ml-latest.zip", "ml-latest-small.zip"],
        ..MOVIELENS_CSV
    },
    Known {
        name: "movielens-10m",
        title: "MovieLens 10M, ratings of movies with 0.5 to 5 stars (Harper & Konstan 2015)",
        page: "https://grouplens.org/datasets/movielens/10m/",
        size: "10 000 054 ratings, 71 567 users, 10 681 movies",
        download: &["ml-10m.zip"],
        ..MOVIELENS_DAT
    },
    MOVIELENS_DAT,
];

/// Names of files of interactions, which a folder or an archive is searched for.
pub(super) const FILES: &[&str] = &[
    "ratings.csv",
    "ratings.dat",
    "goodreads_interactions.csv",
    "goodreads_interactions.csv.gz",
    "full_a.csv",
    "full_a.csv.gz",
    "100k_a.csv",
    "100k_a.csv.gz",
];

/// The data set whose columns are all among `available`.
pub(super) fn with_columns(available: &[String]) -> Option<&'static Known> {
    let has = |column: &str| available.iter().any(|name| name == column);
    // A table made of MovieLens need not keep the time.
    let needed = |known: &Known| match known.only {
        Some(_) => known.columns.iter().all(|column| has(column)),
        None => has(known.user) && has(known.item),
    };
    KNOWN.iter().find(|known| needed(known))
}

/// The columns of a file without a header, by its name (without `.gz`).
pub(super) fn columns_of_file(name: &str) -> Option<&'static [&'static str]> {
    let extension = |name: &str| name.rsplit_once('.').is_some_and(|(_, last)| last == "dat");
    let mut headless = KNOWN.iter().filter(|known| !known.header);
    let known = headless.find(|known| {
        known.files.contains(&name)
            || (extension(name) && known.files.iter().any(|file| extension(file)))
    });
    known.map(|known| known.columns)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_file_of_a_data_set_is_searched_for_and_names_its_columns() {
        for known in KNOWN {
            assert!(known.files.iter().all(|file| FILES.contains(file)), "{}", known.name);
            for column in [known.user, known.item].iter().chain(&known.rating) {
                assert!(known.columns.contains(column), "{}: {column}", known.name);
            }
            let columns = (!known.header).then_some(known.columns);
            assert_eq!(columns_of_file(known.files[0]), columns, "{}", known.name);
        }
    }
}
