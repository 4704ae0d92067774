#include <cerrno>
#include <csignal>
#include <cstring>
#include <functional>
#include <limits>
#include <optional>
#include <set>

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tensor/io/safetensors.h"
#include "tests/support/errors.h"
#include "tests/support/temp_dir.h"
#include "trainer/checkpoints/checkpoint.h"

namespace athanor::checkpoint_file_test {

StateDict sample(std::int64_t step = 7) {
  StateDict state;
  state.set("model.weight", Tensor::from(std::vector<float>{1, -2, 3e-40f, 4}, {2, 2}));
  state.set("step", step);
  state.set("rate", 0.1);
  state.set("nothing", std::numeric_limits<double>::quiet_NaN());
  state.set("limit", std::numeric_limits<double>::infinity());
  state.set("order", Tensor::from(std::vector<std::int64_t>{5, 6}, {2}));
  state.set("empty", Tensor::zeros({0, 3}));
  state.set("note", std::string("tab\t and \xc3\xa9"));
  return state;
}

/// Everything about two dictionaries that a checkpoint promises to keep.
bool same(const StateDict& a, const StateDict& b) {
  if (a.names() != b.names()) return false;
  for (const StateDict::Entry& entry : a) {
    const StateDict::Value& other = *b.find(entry.name);
    if (other.index() != entry.value.index()) return false;
    if (const auto* x = std::get_if<Tensor>(&entry.value)) {
      const Tensor& y = std::get<Tensor>(other);
      if (x->dtype() != y.dtype() || x->shape() != y.shape()) return false;
      if (x->bytes() > 0 && std::memcmp(x->raw_data(), y.raw_data(), x->bytes()) != 0) return false;
    } else if (const auto* real = std::get_if<double>(&entry.value)) {
      const double y = std::get<double>(other);
      if (!(*real == y || (*real != *real && y != y))) return false;
    } else if (const auto* integer = std::get_if<std::int64_t>(&entry.value)) {
      if (*integer != std::get<std::int64_t>(other)) return false;
    } else if (std::get<std::string>(entry.value) != std::get<std::string>(other)) {
      return false;
    }
  }
  return true;
}

class CheckpointFile : public testing::Test {
 protected:
  std::filesystem::path path(const std::string& name = "a.safetensors") const { return folder_ / name; }
  std::set<std::string> names() const {
    std::set<std::string> names;
    for (const auto& entry : std::filesystem::directory_iterator(folder_.path())) {
      names.insert(entry.path().filename().string());
    }
    return names;
  }
  test::TempDir folder_;
};

// One file -------------------------------------------------------------------------------------------------

TEST_F(CheckpointFile, RoundTrips) {
  save_checkpoint(path(), sample());
  EXPECT_TRUE(same(load_checkpoint(path()), sample()));
  EXPECT_TRUE(same(safetensors::load(path()), sample()));  // any reader of the format reads it
  save_checkpoint(path(), {});
  EXPECT_TRUE(load_checkpoint(path()).empty());
}

TEST_F(CheckpointFile, StridedTensorsAreSavedDense) {
  StateDict state;
  const Tensor x = Tensor::from(std::vector<float>{1, 2, 3, 4, 5, 6}, {2, 3});
  state.set("x", x.view_as_strided({3, 2}, {1, 3}, 0));
  save_checkpoint(path(), state);
  EXPECT_EQ(load_checkpoint(path()).tensor("x").to_vector(), (std::vector<double>{1, 4, 2, 5, 3, 6}));
}

TEST_F(CheckpointFile, EveryFlippedBitIsDetectedOrHarmless) {
  save_checkpoint(path(), sample());
  const std::string good = test::read_file(path());
  const int file = open(path().c_str(), O_WRONLY | O_CLOEXEC);
  const auto put = [&](std::size_t at, char byte) {
    ASSERT_EQ(pwrite(file, &byte, 1, static_cast<off_t>(at)), 1);
  };
  int harmless = 0;
  for (std::size_t at = 0; at < good.size(); ++at) {
    for (int bit = 0; bit < 8; ++bit) {
      put(at, static_cast<char>(static_cast<unsigned char>(good[at]) ^ (1u << bit)));
      try {
        ASSERT_TRUE(same(load_checkpoint(path()), sample())) << "byte " << at << ", bit " << bit;
        ++harmless;
      } catch (const IoError& error) {
        ASSERT_TRUE(test::names(error.what(), {"checkpoint", path().string()}));
      }
    }
    put(at, good[at]);
  }
  close(file);
  EXPECT_TRUE(same(load_checkpoint(path()), sample()));
  EXPECT_LT(harmless, 20) << "of "
                          << 8 * good.size();  // such as a letter of a number that may be large or small
}

TEST_F(CheckpointFile, EveryTruncationIsDetected) {
  save_checkpoint(path(), sample());
  const std::string good = test::read_file(path());
  for (std::size_t size = good.size(); size-- > 0;) {
    std::filesystem::resize_file(path(), size);
    EXPECT_ERROR(IoError, load_checkpoint(path()), "checkpoint", path().string());
  }
  test::write_file(path(), good + '\0');
  EXPECT_THROW(load_checkpoint(path()), IoError);
}

TEST_F(CheckpointFile, ErrorsNameTheFileAndWhatIsWrong) {
  EXPECT_ERROR(IoError, load_checkpoint(path("none")), path("none").string(), std::strerror(ENOENT));
  EXPECT_ERROR(IoError, load_checkpoint(folder_.path()), folder_.path().string(), "folder");
  safetensors::save(path(), sample(), {{"format", "pt"}});
  EXPECT_ERROR(IoError, load_checkpoint(path()), "checkpoint", path().string());
  safetensors::save(path(), sample(), {{"format", "athanor.checkpoint"}, {"schema", "4"}, {"checksum", "?"}});
  EXPECT_ERROR(IoError, load_checkpoint(path()), "checkpoint", path().string(), "schema 3", "schema 4");
  safetensors::save(path(), sample(), {{"format", "athanor.checkpoint"}, {"schema", "1"}});
  EXPECT_ERROR(IoError, load_checkpoint(path()), "checkpoint", path().string(), "checksum", "''");
}

TEST_F(CheckpointFile, TheChecksumCoversEveryPartOfAnEntry) {
  const auto one = [](const std::string& name, StateDict::Value value) {
    StateDict state;
    state.set(name, std::move(value));
    return state;
  };
  StateDict ab = one("a", std::int64_t{1}), ba = one("b", std::int64_t{2});
  ab.set("b", std::int64_t{2});
  ba.set("a", std::int64_t{1});
  const Tensor x = Tensor::from(std::vector<float>{1, 2}, {2});
  const std::vector<StateDict> states{
      one("a", std::int64_t{1}),
      one("b", std::int64_t{1}),
      one("a", std::int64_t{2}),
      one("a", 1.0),
      one("a", std::string("1")),
      one("a", std::string("")),
      one("a", x),
      one("a", Tensor::from(std::vector<float>{1, 3}, {2})),
      one("a", Tensor::from(std::vector<float>{1, 2}, {2, 1})),
      one("a", Tensor::from_bytes({x.raw_data(), x.bytes()}, {2}, {DType::i32, kCpu})),
      ab,
      ba,
      {},
  };
  safetensors::Metadata metadata;
  std::set<std::string> checksums;
  for (const StateDict& state : states) {
    save_checkpoint(path(), state);
    safetensors::load(path(), &metadata);
    EXPECT_TRUE(checksums.insert(metadata.at("checksum")).second) << metadata.at("checksum");
  }
  safetensors::save(path(), states.front(), metadata);  // whole and well formed, with another one's checksum
  EXPECT_ERROR(IoError, load_checkpoint(path()), path().string(), "checksum", metadata.at("checksum"));
}

TEST_F(CheckpointFile, TextsBesideTheEntriesComeBackAndAreCovered) {
  const safetensors::Metadata about = {{"model", "lenet5"}, {"note", ""}};
  save_state_file(path(), StateFile::checkpoint, sample(), dist::read_whole, about);
  safetensors::Metadata read, all;
  EXPECT_TRUE(same(load_state_file(path(), StateFile::checkpoint, Verify::all, &read), sample()));
  EXPECT_EQ(read, about);
  safetensors::load(path(), &all);
  EXPECT_EQ(all.at("model"), "lenet5") << "under its own name";
  all["model"] = "lenet6";
  safetensors::save(path(), sample(), all);
  EXPECT_ERROR(IoError, load_checkpoint(path()), path().string(), "checksum", all.at("checksum"));
}

// A folder -------------------------------------------------------------------------------------------------

TEST_F(CheckpointFile, TheFolderKeepsTheNewest) {
  CheckpointFolder folder(path("new/deep"), 3);
  for (const std::int64_t step : {1, 2, 5, 9}) {
    folder.save(step, sample(step));
    EXPECT_TRUE(std::filesystem::exists(folder.path_of(step)));
    EXPECT_EQ(newest_valid(folder.path()).path, folder.path_of(step));
  }
  EXPECT_EQ(folder.steps(), (std::vector<std::int64_t>{2, 5, 9}));
  EXPECT_EQ(folder.path_of(42).filename(), "step-00000042.safetensors");
  // Steps of more digits are newer all the same, and those of a later step than this one are not its
  // business.
  test::write_file(folder.path_of(1'000'000'000), "x");
  folder.save(10, sample(10));
  EXPECT_EQ(folder.steps(), (std::vector<std::int64_t>{5, 9, 10, 1'000'000'000}));
  folder.save(1'000'000'000, sample());
  EXPECT_EQ(newest_valid(folder.path()).path, folder.path_of(1'000'000'000));
  EXPECT_EQ(folder.steps().size(), 3u);
  EXPECT_THROW(CheckpointFolder(path("b"), 0), ArgumentError);
}

TEST_F(CheckpointFile, TheNewestValidOneIsFoundAndOthersAreNamed) {
  EXPECT_TRUE(newest_valid(path("none")).path.empty());
  CheckpointFolder folder(folder_.path(), 10);
  EXPECT_TRUE(newest_valid(folder.path()).path.empty());
  for (std::int64_t step = 1; step <= 5; ++step) folder.save(step, sample(step));
  const std::string good = test::read_file(folder.path_of(5));
  test::write_file(folder.path_of(5), good.substr(0, good.size() / 2));
  test::write_file(folder.path_of(4), "");
  safetensors::save(folder.path_of(3), sample());  // somebody else's
  // Names that are not ours, all holding a good and newer checkpoint.
  for (const char* name :
       {"step-99.safetensors", "step-000000099.safetensors", "step-00000099.safetensors.bak",
        "step-00000099.safetensors.12-0.tmp", "Step-00000099.safetensors", "step--0000099.safetensors",
        "xstep-00000099.safetensors", "model.safetensors"}) {
    test::write_file(path(name), good);
  }
  std::filesystem::create_directory(path("step-00000098.safetensors"));
  const NewestCheckpoint newest = newest_valid(folder.path());
  EXPECT_EQ(newest.path, folder.path_of(2));
  EXPECT_EQ(newest.state.integer("step"), 2);
  ASSERT_EQ(newest.skipped.size(), 3u);
  EXPECT_TRUE(test::names(newest.skipped[0], {"step-00000005.safetensors"}));
  EXPECT_TRUE(test::names(newest.skipped[1], {"step-00000004.safetensors"}));
  EXPECT_TRUE(test::names(newest.skipped[2], {"step-00000003.safetensors"}));
}

TEST_F(CheckpointFile, CleansUpOnlyFilesOfKilledSaves) {
  const std::vector<std::string> foreign{"notes.txt",
                                         "step-00000001.safetensors.tmp",
                                         "x.12-0.tmp",
                                         "step-00000001.safetensors.12-x.tmp",
                                         "step-1.safetensors.12-0.tmp",
                                         "model.safetensors"};
  for (const std::string& name : foreign) test::write_file(path(name), "x");
  test::write_file(path("step-00000001.safetensors.4711-0.tmp"), "half");
  test::write_file(path("step-123456789.safetensors.1-22.tmp"), "");
  CheckpointFolder folder(folder_.path(), 1);
  std::set<std::string> left(foreign.begin(), foreign.end());
  EXPECT_EQ(names(), left);
  folder.save(1, sample());
  folder.save(2, sample());
  left.insert("step-00000002.safetensors");
  EXPECT_EQ(names(), left);
}

TEST_F(CheckpointFile, AFolderBelongsToOneRunAtATime) {
  {
    const CheckpointFolder first(folder_.path());
    EXPECT_ERROR(ArgumentError, CheckpointFolder(folder_.path()), "--checkpoint-dir",
                 folder_.path().string());
  }
  EXPECT_NO_THROW(CheckpointFolder(folder_.path()));
}

// Failures -------------------------------------------------------------------------------------------------

/// Runs `body` in a child; the error there, which it writes to the file `said`.
std::string in_child(const std::filesystem::path& said, const std::function<void()>& body) {
  const pid_t child = fork();
  if (child == 0) {
    test::write_file(said, test::message_of<IoError>(body));
    _exit(0);
  }
  int status = 0;
  waitpid(child, &status, 0);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
  return test::read_file(said);
}

TEST_F(CheckpointFile, AFullDiskIsOneLineAndThePreviousFileStays) {
  const test::TempDir outside;
  CheckpointFolder folder(folder_.path(), 1);
  folder.save(1, sample(1));
  StateDict large = sample(2);
  large.set("large", Tensor::zeros({100'000}));
  const std::string said = in_child(outside / "said", [&] {
    const rlimit limit{50'000, 50'000};  // the same to a writer as a disk that is full after 50 kB
    signal(SIGXFSZ, SIG_IGN);
    setrlimit(RLIMIT_FSIZE, &limit);
    folder.save(2, large);
  });
  // A name of its own until it is whole.
  EXPECT_TRUE(test::names(said, {"save", path("step-00000002.safetensors.").string(), std::strerror(EFBIG)}));
  EXPECT_EQ(names(), std::set<std::string>{"step-00000001.safetensors"});
  EXPECT_TRUE(same(newest_valid(folder.path()).state, sample(1)));
}

TEST_F(CheckpointFile, AFolderThatCannotBeWrittenIsOneLine) {
  const test::TempDir outside;
  chmod(outside.path().c_str(), 0777);
  test::write_file(path("file"), "");
  EXPECT_ERROR(IoError, CheckpointFolder(path("file/below")), "--checkpoint-dir",
               path("file/below").string());
  EXPECT_ERROR(IoError, CheckpointFolder(path("file")), "--checkpoint-dir", path("file").string());
  std::filesystem::remove(path("file"));
  { CheckpointFolder(folder_.path()).save(1, sample(1)); }
  chmod(folder_.path().c_str(), 0555);
  const std::string said = in_child(outside / "said", [&] {
    if (geteuid() == 0 && seteuid(65534) != 0) return;
    CheckpointFolder folder(folder_.path());
  });
  const std::string saving = in_child(outside / "saving", [&] {
    if (geteuid() == 0 && seteuid(65534) != 0) return;
    save_checkpoint(path("step-00000001.safetensors"), sample(2));
  });
  chmod(folder_.path().c_str(), 0333);  // nothing can be seen in it: not the same as nothing
  const std::string reading = in_child(outside / "reading", [&] {
    if (geteuid() == 0 && seteuid(65534) != 0) return;
    newest_valid(folder_.path());
  });
  chmod(folder_.path().c_str(), 0755);
  const std::string denied = std::strerror(EACCES), folder = folder_.path().string();
  EXPECT_TRUE(test::names(reading, {"--checkpoint-dir", folder, denied}));
  EXPECT_TRUE(test::names(said, {"--checkpoint-dir", folder, denied}));
  EXPECT_TRUE(test::names(saving, {"save", folder, denied}));
  EXPECT_TRUE(same(newest_valid(folder_.path()).state, sample(1)));
}

// kill -9 --------------------------------------------------------------------------------------------------

/// Runs `body` in a child and kills it when it has entered or left `count` system calls; whether it was done
/// before. Nothing where this machine lets nobody trace.
std::optional<bool> run_until_call(int count, const std::function<void()>& body) {
  const pid_t child = fork();
  if (child == 0) {
    if (ptrace(PTRACE_TRACEME, 0, nullptr, nullptr) != 0) _exit(3);
    raise(SIGSTOP);
    body();
    _exit(0);
  }
  int status = 0;
  waitpid(child, &status, 0);
  if (WIFEXITED(status)) return std::nullopt;
  for (int calls = 0; calls < count; ++calls) {
    if (ptrace(PTRACE_SYSCALL, child, nullptr, nullptr) != 0) break;
    waitpid(child, &status, 0);
    if (WIFEXITED(status)) return true;
  }
  kill(child, SIGKILL);
  waitpid(child, &status, 0);
  return false;
}

TEST_F(CheckpointFile, AKillBetweenAnyTwoSystemCallsLeavesAFolderThatLoads) {
  int kills = 0;
  std::set<std::int64_t> found;
  for (bool done = false; !done; ++kills) {
    const test::TempDir place;
    { CheckpointFolder(place.path(), 1).save(1, sample(1)); }
    const auto result = run_until_call(kills, [&] {
      CheckpointFolder folder(place.path(), 1);
      folder.save(2, sample(2));
      folder.save(3, sample(3));
    });
    if (!result) GTEST_SKIP() << "processes cannot be traced here";
    done = *result;
    const NewestCheckpoint newest = newest_valid(place.path());
    ASSERT_TRUE(newest.skipped.empty()) << kills << ": " << newest.skipped[0];
    ASSERT_FALSE(newest.path.empty()) << kills;
    const std::int64_t step = newest.state.integer("step");
    ASSERT_TRUE(same(newest.state, sample(step))) << kills;
    found.insert(step);
    // The next run can use the folder, and leaves no more than one file.
    CheckpointFolder next(place.path(), 1);
    next.save(4, sample(4));
    std::size_t files = 0;
    for ([[maybe_unused]] const auto& entry : std::filesystem::directory_iterator(place.path())) ++files;
    ASSERT_EQ(files, 1u) << kills;
  }
  EXPECT_EQ(found, (std::set<std::int64_t>{1, 2, 3}));
  EXPECT_GT(kills, 40);
}

}  // namespace athanor::checkpoint_file_test
