// The history's file: jobs that outlive their monitor, age and size, damage, versions.
#include "monitor/history/database.h"

#include <sys/stat.h>

#include <fstream>

#include "tests/monitor/history/history_scene.h"

namespace switchyard::monitor::history {
namespace {

class HistoryDatabase : public HistoryScene {};

TEST_F(HistoryDatabase, AFileOfAMonitorThatKnewNoUnmanagedProcessesGoesOn) {
  ASSERT_TRUE(write_one(1, job("a"), 490'000, 30));
  open_after("DROP TABLE unmanaged");
  ASSERT_TRUE(write(unmanaged_rows(490'000, 1000, 3)));
  EXPECT_EQ(ask(By::kUser)["unmanaged"].size(), 1u);
  EXPECT_EQ(rows(By::kUser)[0]["gpu_seconds"], 30);
}

TEST_F(HistoryDatabase, AFileOfAMonitorThatKnewNoSlurmGoesOn) {
  ASSERT_TRUE(write_one(1, job("a"), kNow / kHourSeconds, 3)) << why;
  open_after("ALTER TABLE jobs DROP COLUMN slurm_job");
  ASSERT_NE(database, nullptr) << why;
  JobRow row = job("b");
  row.slurm_job = "42";
  ASSERT_TRUE(write_one(2, row, kNow / kHourSeconds, 4)) << why;
  EXPECT_EQ(rows(By::kJob).size(), 2u);
  EXPECT_EQ(rows(By::kSlurmJob)[0]["gpu_seconds"], 4);
}

TEST_F(HistoryDatabase, AnEndedJobIsFinalAndItsIdMayComeAgain) {
  JobRow ends = job("a");
  ends.ended = kNow + 20;
  ASSERT_TRUE(write_one(1, ends, 490'000, 3));
  ASSERT_TRUE(write_one(2, job("a"), 490'000, 4));
  JobRow found = job("a");
  found.found_again = true;
  open();
  ASSERT_TRUE(write_one(1, found, 490'000, 5));
  const json all = rows(By::kJob);
  ASSERT_EQ(all.size(), 2u);
  EXPECT_EQ(all[0]["gpu_seconds"], 3);
  EXPECT_EQ(all[0]["ended_unix_seconds"], kNow + 20);
  EXPECT_EQ(all[0]["exit"], "ended");
  EXPECT_EQ(all[1]["gpu_seconds"], 9) << "the next monitor continues the one that lives";
}

TEST_F(HistoryDatabase, HowAJobEndedIsKeptWhereItIsKnown) {
  const char* ends[] = {"", "exit code 3", "signal 9", "written by another version"};
  for (JobKey key = 1; key <= 4; ++key) {
    JobRow row = job(std::to_string(key));
    row.ended = kNow + 20;
    row.exit = ends[key - 1];
    ASSERT_TRUE(write_one(key, row, 490'000, 3));
  }
  const json all = rows(By::kJob);
  ASSERT_EQ(all.size(), 4u);
  for (const json& row : all) EXPECT_EQ(row["exit"], "ended");
  for (const int unknown : {0, 3}) {
    EXPECT_TRUE(all[unknown]["exit_code"].is_null() && all[unknown]["exit_signal"].is_null());
  }
  EXPECT_EQ(all[1]["exit_code"], 3);
  EXPECT_TRUE(all[1]["exit_signal"].is_null());
  EXPECT_TRUE(all[2]["exit_code"].is_null());
  EXPECT_EQ(all[2]["exit_signal"], 9);
}

TEST_F(HistoryDatabase, AJobThatTheNextMonitorDoesNotFindIsLost) {
  ASSERT_TRUE(write_one(1, job("a"), 490'000, 3));
  ASSERT_TRUE(write_one(2, job("b"), 490'000, 3));
  open();
  JobRow found = job("b");
  found.found_again = true;
  ASSERT_TRUE(write_one(7, found, 490'000, 3));
  const json all = rows(By::kJob);
  ASSERT_EQ(all.size(), 2u);
  EXPECT_EQ(all[0]["exit"], "lost");
  EXPECT_EQ(all[0]["ended_unix_seconds"], kNow);
  EXPECT_TRUE(all[1]["exit"].is_null());
}

TEST_F(HistoryDatabase, AFreshJobDoesNotContinueALostOneOfItsId) {
  ASSERT_TRUE(write_one(1, job("a"), 490'000, 3));
  open();
  JobRow fresh = job("a");
  fresh.started = kNow + 60;
  ASSERT_TRUE(write_one(1, fresh, 490'000, 4));
  const json all = rows(By::kJob);
  ASSERT_EQ(all.size(), 2u);
  EXPECT_EQ(all[0]["gpu_seconds"], 3);
  EXPECT_EQ(all[1]["gpu_seconds"], 4);
}

TEST_F(HistoryDatabase, OldHoursGoInSmallStepsAndAJobWithItsLastHour) {
  days = 1;
  open();
  Rows old;
  for (JobKey key = 1; key <= 2 * Database::kMostRemoved; ++key) {
    old.jobs[key] = job(std::to_string(key));
    old.bills[{489'000, key, 0}] = bill(1);
  }
  ASSERT_TRUE(write(old, 489'000 * kHourSeconds)) << why;
  ASSERT_TRUE(write_one(5000, job("young"), 490'000, 1));
  EXPECT_FALSE(database->tidy({now, kNow})) << "the clock may be wrong";
  EXPECT_EQ(rows(By::kUser)[0]["jobs"], 1001);
  now += Database::kTrustsClockAfter;
  const std::int64_t later = kNow + 600;
  int steps = 0;
  while (database->tidy({now, later})) ++steps;
  EXPECT_EQ(steps, 2 * 2 + 2);  // bills and times of two states, then jobs
  EXPECT_EQ(rows(By::kJob).size(), 1u);
}

TEST_F(HistoryDatabase, AClockThatJumpsRemovesNothing) {
  ASSERT_TRUE(write_one(1, job("a"), 490'000, 3));
  database->tidy({now, kNow});
  now += std::chrono::hours(1);
  EXPECT_FALSE(database->tidy({now, kNow + 365 * 24 * kHourSeconds}));
  now += std::chrono::minutes(5);
  EXPECT_FALSE(database->tidy({now, kNow + 365 * 24 * kHourSeconds + 300}));
  now += std::chrono::minutes(1);
  EXPECT_FALSE(database->tidy({now, kNow + kHourSeconds + 360}));  // and back
  EXPECT_EQ(rows(By::kJob).size(), 1u);
}

TEST_F(HistoryDatabase, AClockThatIsSetBackMakesNoSpanNegative) {
  JobRow ends = job("a");
  ends.ended = kNow - 5000;
  ASSERT_TRUE(write_one(1, ends, 489'998, 3));
  const json row = rows(By::kJob)[0];
  EXPECT_EQ(row["ended_unix_seconds"], row["started_unix_seconds"]);
  EXPECT_EQ(row["lived_seconds"], 10);
}

TEST_F(HistoryDatabase, BeyondItsSizeTheOldestHoursMakeWay) {
  bytes = 256u << 10;
  open();
  for (int hour = 0; hour < 40; ++hour) {
    Rows rows;
    for (JobKey key = 1; key <= 200; ++key) {
      rows.jobs[key] = job(std::to_string(key));
      rows.bills[{490'000 + hour, key, 0}] = bill(1);
    }
    ASSERT_TRUE(write(rows, kNow + hour * kHourSeconds)) << why;
    while (database->tidy({now, kNow + hour * kHourSeconds})) {
    }
  }
  EXPECT_LT(fs::file_size(file()), bytes + (256u << 10));
  since = 490'039;
  EXPECT_EQ(rows(By::kUser)[0]["gpu_seconds"], 200) << "the newest hour is there";
  since = 490'000, until = 490'001;
  EXPECT_EQ(rows(By::kUser).size(), 0u);
}

// Another program holds the file's lock: the write gives up within SQLite's own patience.
TEST_F(HistoryDatabase, ALockedFileTakesNothingAndAllOfItAfterwards) {
  Sqlite other;
  ASSERT_TRUE(other.open(file()));
  ASSERT_TRUE(other.run("BEGIN IMMEDIATE"));
  EXPECT_FALSE(write_one(1, job("a"), 490'000, 3));
  EXPECT_EQ(why, "database is locked");
  EXPECT_EQ(rows(By::kJob).size(), 0u) << "it can still be read";
  ASSERT_TRUE(other.run("COMMIT"));
  ASSERT_TRUE(write_one(1, job("a"), 490'000, 3)) << why;
  EXPECT_EQ(rows(By::kJob)[0]["gpu_seconds"], 3);
}

TEST_F(HistoryDatabase, AJobWhoseFirstWriteFailedHalfwayIsInTheReportAfterwards) {
  Sqlite other;
  ASSERT_TRUE(other.open(file()));
  ASSERT_TRUE(
      other.run("CREATE TRIGGER no_room BEFORE INSERT ON bills "
                "BEGIN SELECT raise(ABORT, 'disk full'); END"));
  EXPECT_FALSE(write_one(1, job("a"), 490'000, 3)) << "its row was added before its bill";
  EXPECT_EQ(why, "disk full");
  ASSERT_TRUE(other.run("DROP TRIGGER no_room"));
  ASSERT_TRUE(write_one(1, job("a"), 490'000, 4)) << why;
  const json all = rows(By::kJob);
  ASSERT_EQ(all.size(), 1u);
  EXPECT_EQ(all[0]["job"], "a");
  EXPECT_EQ(all[0]["gpu_seconds"], 4);
}

TEST_F(HistoryDatabase, ADamagedFileIsSetAsideAndAnotherBegun) {
  ASSERT_TRUE(write_one(1, job("a"), 490'000, 3));
  database.reset();
  std::ofstream(file(), std::ios::in | std::ios::out) << "this is no database at all";
  open();
  ASSERT_NE(database, nullptr) << why;
  EXPECT_NE(database->remark().find("history.db.damaged"), std::string::npos);
  EXPECT_TRUE(fs::exists(file() + ".damaged"));
  ASSERT_TRUE(write_one(1, job("a"), 490'000, 4));
  EXPECT_EQ(rows(By::kJob)[0]["gpu_seconds"], 4);
}

TEST_F(HistoryDatabase, DamageThatIsFoundLaterIsNoLossOfNewRows) {
  Rows many;
  for (JobKey key = 1; key <= 500; ++key) {
    many.jobs[key] = job(std::to_string(key));
    many.bills[{490'000, key, 0}] = bill(1);
  }
  ASSERT_TRUE(write(many));
  database.reset();
  const auto size = fs::file_size(file());
  {
    std::fstream damaged(file(), std::ios::in | std::ios::out | std::ios::binary);
    // All but the pages of the schema.
    damaged.seekp(4096 * 2);
    damaged << std::string(size - 4096 * 2, '\x5a');
  }
  open();
  ASSERT_TRUE(database != nullptr) << why;
  ASSERT_TRUE(write_one(1, job("a"), 490'000, 4)) << why;
  EXPECT_TRUE(fs::exists(file() + ".damaged"));
  EXPECT_EQ(rows(By::kJob).size(), 1u);
}

TEST_F(HistoryDatabase, AFileOfANewerVersionIsLeftAlone) {
  ASSERT_TRUE(write_one(1, job("a"), 490'000, 3));
  open_after("PRAGMA user_version = 99; ALTER TABLE jobs ADD COLUMN more");
  EXPECT_EQ(database, nullptr);
  EXPECT_NE(why.find("newer version (99; this monitor knows 1) and is left alone"),
            std::string::npos)
      << why;
  Sqlite still;
  ASSERT_TRUE(still.open(file()));
  Statement more(still, "SELECT more FROM jobs");
  EXPECT_TRUE(more.row());
}

TEST_F(HistoryDatabase, AnotherProgramsFileIsLeftAlone) {
  database.reset();
  fs::remove(file());
  {
    Sqlite other;
    ASSERT_TRUE(other.open(file()));
    ASSERT_TRUE(other.run("CREATE TABLE songs(name)"));
  }
  open();
  EXPECT_EQ(database, nullptr);
  EXPECT_NE(why.find("no history of Switchyard"), std::string::npos) << why;
}

TEST_F(HistoryDatabase, AFileThatIsInUseAtTheStartIsTriedAgain) {
  ASSERT_TRUE(write_one(1, job("a"), 490'000, 3));
  database.reset();
  Sqlite backup;
  ASSERT_TRUE(backup.open(file()));
  ASSERT_TRUE(backup.run("BEGIN EXCLUSIVE"));
  open();
  ASSERT_NE(database, nullptr) << why;
  EXPECT_NE(database->remark().find("database is locked; it is tried again"), std::string::npos);
  EXPECT_NE(database->report({}).find("database is locked"), std::string::npos);
  EXPECT_FALSE(write_one(2, job("b"), 490'001, 4));
  ASSERT_TRUE(backup.run("COMMIT"));
  EXPECT_TRUE(write_one(2, job("b"), 490'001, 4)) << why;
  EXPECT_EQ(rows(By::kJob).size(), 2u);
}

TEST_F(HistoryDatabase, AFileThatWasInUseAndIsDamagedIsSetAside) {
  database.reset();
  Sqlite backup;
  ASSERT_TRUE(backup.open(file()));
  ASSERT_TRUE(backup.run("BEGIN EXCLUSIVE"));
  open();
  ASSERT_NE(database, nullptr) << why;
  backup = {};
  fs::remove(file() + "-wal");
  std::ofstream(file(), std::ios::trunc) << std::string(8192, 'x');
  EXPECT_TRUE(write_one(1, job("a"), 490'000, 3)) << why;
  EXPECT_TRUE(fs::exists(file() + ".damaged"));
}

TEST_F(HistoryDatabase, OneMonitorWritesIt) {
  Place place{folder, days, bytes, {}};
  EXPECT_EQ(Database::open(place, why), nullptr);
  EXPECT_NE(why.find("another monitor writes"), std::string::npos) << why;
}

TEST_F(HistoryDatabase, NobodyElseMayReadIt) {
  struct stat info {};
  for (const char* name : {"/history.db", "/history.db-wal", "/history.db-shm"}) {
    ASSERT_EQ(::stat((folder + name).c_str(), &info), 0) << name;
    EXPECT_EQ(info.st_mode & 077, 0u) << name;
  }
  ASSERT_EQ(::stat(folder.c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0700u);
}

TEST_F(HistoryDatabase, MayLieBehindALink) {
  const fs::path base = fs::path(folder).parent_path();
  fs::create_directory(base / "large-disk");
  fs::create_directory_symlink(base / "large-disk", base / "home");
  folder = (base / "home" / "state").string();
  open();
  ASSERT_NE(database, nullptr) << why;
  EXPECT_TRUE(fs::exists(base / "large-disk" / "state" / "history.db"));
  folder = base / "switchyard";  // whose parent is removed
}

}  // namespace
}  // namespace switchyard::monitor::history
