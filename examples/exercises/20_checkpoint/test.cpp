#include <string>

#include <gtest/gtest.h>

#include "disk.h"
#include "save.h"

namespace {

const std::string kOld = "weights of epoch 1", kNew = "weights of epoch 2, which are longer";

Disk with_old() {
  Disk disk;
  save(disk, kOld);
  disk.sync("checkpoint");
  disk.sync_folder();
  return disk;
}

// Saves, killed before call `at`: whether it was.
bool killed(Disk& disk, int at) {
  disk.kill_before(at);
  try {
    save(disk, kNew);
  } catch (const Disk::Killed&) {
    disk.kill_before(-1);
    return true;
  }
  disk.kill_before(-1);
  return false;
}

std::string what(const Disk& disk) {
  return disk.contents("checkpoint").value_or("no file");
}
bool whole(const std::string& contents) {
  return contents == kOld || contents == kNew;
}

TEST(Save, WritesTheCheckpoint) {
  Disk disk;
  save(disk, kOld);
  EXPECT_EQ(what(disk), kOld) << "the first checkpoint";
  save(disk, kNew);
  EXPECT_EQ(what(disk), kNew) << "the second replaces it";
}

TEST(Save, SurvivesAKillAtAnyStep) {
  for (int at = 0;; ++at) {
    Disk disk = with_old();
    const bool was_killed = killed(disk, at);
    ASSERT_NE(what(disk), "no file") << "killed before call " << at
                                     << ": the old checkpoint was removed before the new one had its name";
    ASSERT_TRUE(whole(what(disk))) << "killed before call " << at << ", the checkpoint is \"" << what(disk)
                                   << "\": it was overwritten in place";
    if (!was_killed) break;
  }
}

TEST(Save, SurvivesAPowerCutAtAnyStep) {
  for (int at = 0;; ++at) {
    bool was_killed = true;
    for (const bool keeps_names : {true, false}) {
      for (const bool keeps_contents : {true, false}) {
        Disk disk = with_old();
        was_killed = killed(disk, at);
        disk.lose_power(keeps_names, keeps_contents);
        ASSERT_TRUE(whole(what(disk)))
            << "power lost before call " << at << ", with names " << (keeps_names ? "kept" : "lost")
            << " and contents " << (keeps_contents ? "kept" : "lost") << ": the checkpoint is \""
            << what(disk)
            << "\". A new name may survive without the contents: sync the file before it gets its name";
      }
    }
    if (!was_killed) break;
  }
}

TEST(Save, HasReallySavedWhenItReturns) {
  for (const bool keeps_names : {true, false}) {
    Disk disk = with_old();
    save(disk, kNew);
    disk.lose_power(keeps_names, false);
    EXPECT_EQ(what(disk), kNew)
        << "save had returned, but after a power cut the new checkpoint is not there: "
        << (keeps_names ? "its contents were never synced"
                        : "its name was never synced, so that the old one is back");
  }
}

TEST(Save, WorksAfterAnInterruptedSave) {
  for (int at = 0; at < 10; ++at) {
    Disk disk = with_old();
    killed(disk, at);
    EXPECT_NO_THROW(save(disk, kNew))
        << "a save was killed before call " << at << ", and the next one fails on what it left behind";
    EXPECT_EQ(what(disk), kNew) << "a save was killed before call " << at << ", and the next one mixes both";
  }
}

}  // namespace
