#include "data/formats/import/cache.h"

#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <sstream>
#include <string_view>

#include <fcntl.h>
#include <spawn.h>
#include <sys/file.h>
#include <sys/wait.h>
#include <unistd.h>

#include "data/dataset_view.h"
#include "data/formats/crc32c.h"
#include "data/formats/detail/bytes.h"
#include "data/formats/packed.h"
#include "kernels/hash.h"
#include "tensor/base/error.h"
#include "tensor/io/atomic_file.h"
#include "tensor/io/regular_file.h"

namespace athanor {
namespace {

namespace fs = std::filesystem;

/// Admits one process at a time. A program that inherits the descriptor holds it, too.
class Lock {
 public:
  explicit Lock(const fs::path& path) : file_(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600)) {
    int result = file_ < 0 ? -1 : 0;
    while (file_ >= 0 && (result = ::flock(file_, LOCK_EX)) != 0 && errno == EINTR) {
    }
    if (result == 0) return;
    const int error = errno;
    if (file_ >= 0) ::close(file_);
    detail::fail<IoError>("import: cannot lock {}: {}; set XDG_CACHE_HOME to another folder", path.string(),
                          std::strerror(error));
  }
  ~Lock() { ::close(file_); }
  Lock(const Lock&) = delete;
  Lock& operator=(const Lock&) = delete;

  int descriptor() const { return file_; }

 private:
  int file_;
};

/// The packed file, removed if it turns out to be damaged.
class ImportedStore final : public DatasetView {
 public:
  explicit ImportedStore(const fs::path& path)
      : DatasetView(std::make_shared<PackedStore>(path)), path_(path) {}

  StoredSample fetch(std::int64_t index, std::vector<std::byte>& scratch) const override {
    try {
      return DatasetView::fetch(index, scratch);
    } catch (const IoError& error) {
      std::error_code ignored;
      fs::remove(path_, ignored);
      detail::fail<IoError>("{}; the file was removed; open the source again to rebuild it", error.what());
    }
  }
  // They fetch() here, not in the packed file.
  std::int64_t read(std::int64_t index, std::span<std::uint8_t> pixels) const override {
    return Dataset::read(index, pixels);
  }
  std::int64_t read_in_epoch(std::int64_t index, std::int64_t epoch,
                             std::span<std::uint8_t> pixels) const override {
    return Dataset::read_in_epoch(index, epoch, pixels);
  }
  void read_fields(std::int64_t index, std::int64_t epoch, SampleRow& row) const override {
    Dataset::read_fields(index, epoch, row);
  }
  std::string check_sample(std::int64_t index) const override { return Dataset::check_sample(index); }
  const Dataset& origin() const override { return *this; }
  std::int64_t origin_index(std::int64_t index) const override { return index; }

 private:
  fs::path path_;
};

/// The program athanor: beside this one, else on PATH.
fs::path find_program(const fs::path& source) {
  std::error_code error;
  const fs::path here = fs::read_symlink("/proc/self/exe", error).parent_path();
  const char* const search = std::getenv("PATH");
  std::istringstream folders(here.string() + ':' + (search ? search : ""));
  for (std::string folder; std::getline(folders, folder, ':');) {
    if (folder.empty()) continue;  // not the current one: data may lie there that others have made
    const fs::path program = fs::path(folder) / "athanor";
    if (fs::is_regular_file(program, error) && ::access(program.c_str(), X_OK) == 0) return program;
  }
  detail::fail<IoError>(
      "import: {} is read by the program athanor, which must lie in {} or on PATH, but does not; install it, "
      "or convert the data where it is installed: athanor pack {} NEW.athp",
      source.string(), here.string(), source.string());
}

/// How a program ended, and the last line that it wrote on standard error.
struct Ended {
  int status = 0;
  std::string line;
};

/// Runs a program without input and output; it inherits the lock, so that the source is packed once even if
/// this process ends meanwhile.
Ended run(const std::vector<std::string>& words, const Lock& lock) {
  std::array<int, 2> ends{-1, -1};
  if (::pipe2(ends.data(), O_CLOEXEC) != 0)
    detail::fail<IoError>("import: cannot make a pipe: {}", std::strerror(errno));
  std::vector<char*> arguments;
  for (const std::string& word : words) arguments.push_back(const_cast<char*>(word.c_str()));
  arguments.push_back(nullptr);
  posix_spawn_file_actions_t files;
  ::posix_spawn_file_actions_init(&files);
  ::posix_spawn_file_actions_addopen(&files, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  ::posix_spawn_file_actions_addopen(&files, STDOUT_FILENO, "/dev/null", O_WRONLY, 0);
  ::posix_spawn_file_actions_adddup2(&files, ends[1], STDERR_FILENO);
  ::posix_spawn_file_actions_adddup2(&files, lock.descriptor(), lock.descriptor());
  pid_t pid = -1;
  const int error = ::posix_spawn(&pid, words[0].c_str(), &files, nullptr, arguments.data(), ::environ);
  ::posix_spawn_file_actions_destroy(&files);
  ::close(ends[1]);
  std::string said;
  std::array<char, 4096> some{};
  for (ssize_t count = 1; error == 0 && (count > 0 || (count < 0 && errno == EINTR));) {
    count = ::read(ends[0], some.data(), some.size());
    if (count > 0) said.append(some.data(), static_cast<std::size_t>(count));
    if (said.size() > 2 * some.size()) said.erase(0, said.size() - some.size());
  }
  ::close(ends[0]);
  if (error != 0) detail::fail<IoError>("import: cannot start {}: {}", words[0], std::strerror(error));
  Ended ended;
  while (::waitpid(pid, &ended.status, 0) < 0 && errno == EINTR) {
  }
  while (said.ends_with('\n')) said.pop_back();
  ended.line = athanor::printable(said.substr(said.rfind('\n') + 1));
  return ended;
}

/// Packs the source, or says why it cannot.
void pack(const fs::path& source, const std::string& fields, LabelKind labels, const fs::path& to,
          const Lock& lock) {
  const fs::path program = find_program(source);
  std::vector<std::string> words{program.string(), "pack", "--no-decode", "--threads", "1"};
  if (!fields.empty()) words.insert(words.end(), {"--fields", fields});
  if (labels != LabelKind::classes) words.insert(words.end(), {"--task", std::string(name_of(labels))});
  words.insert(words.end(), {"--", source.string(), to.string()});
  const Ended ended = run(words, lock);
  if (WIFEXITED(ended.status) && WEXITSTATUS(ended.status) == 0) return;
  AtomicFile::remove_unfinished(to.parent_path());
  constexpr std::string_view kSpeaker = "athanor: ";
  std::string why = ended.line;
  if (why.starts_with(kSpeaker)) why.erase(0, kSpeaker.size());
  if (WIFSIGNALED(ended.status)) {
    why = fmt::format("{} pack was ended by signal {} ({})", program.string(), WTERMSIG(ended.status),
                      ::strsignal(WTERMSIG(ended.status)));
  } else if (why.empty()) {
    why = fmt::format("{} pack ended with status {}", program.string(), WEXITSTATUS(ended.status));
  }
  detail::fail<IoError>("import: {} cannot be packed: {}", source.string(), why);
}

/// Removes packed files of older versions of the source, and remains of killed imports.
void remove_stale(const fs::path& folder, const std::string& prefix) {
  AtomicFile::remove_unfinished(folder);
  std::error_code error;
  for (fs::directory_iterator at(folder, error), end; !error && at != end; at.increment(error)) {
    const std::string name = at->path().filename().string();
    if (name.starts_with(prefix) && name.ends_with(".athp")) fs::remove(at->path(), error);
  }
}

}  // namespace

fs::path cache_folder(const std::string& name) {
  const char *cache = std::getenv("XDG_CACHE_HOME"), *home = std::getenv("HOME");
  fs::path folder;
  if (cache && cache[0] == '/') {
    folder = cache;
  } else if (home && home[0] == '/') {
    folder = fs::path(home) / ".cache";
  } else {
    detail::fail<IoError>("import: imported files need a cache folder; set XDG_CACHE_HOME to one");
  }
  return folder / "athanor" / name;
}

fs::path import_folder() {
  return cache_folder("imported");
}

std::unique_ptr<Dataset> open_imported(const fs::path& path, const std::vector<fs::path>& files,
                                       const std::string& fields, LabelKind labels,
                                       const ImportNotice& on_import) {
  std::error_code error;
  std::uint32_t id = crc32c(detail::bytes_of(fields));
  if (labels != LabelKind::classes) id = crc32c(detail::bytes_of(name_of(labels)), id);
  std::int64_t bytes = 0;
  kernels::HashOf state;
  for (const fs::path& one : files) {
    const RegularFile file(one);
    if (!file.problem().empty()) detail::fail<IoError>("import: {} {}", one.string(), file.problem());
    id = crc32c(detail::bytes_of(fs::canonical(one, error).string()), id);
    bytes += file.bytes();
    state.add(file.bytes(), fs::last_write_time(one, error).time_since_epoch().count());
  }
  const fs::path folder = import_folder();
  fs::create_directories(folder, error);
  fs::permissions(folder, fs::perms::owner_all, error);
  // Names end at 255 bytes, and each of these may have four.
  const std::string prefix = fmt::format("{:.40}-{:08x}", path.stem().string(), id);
  const fs::path packed = folder / fmt::format("{}-{:016x}.athp", prefix, state.value());

  const Lock lock(folder / (prefix + ".lock"));
  if (fs::exists(packed, error)) {
    try {
      return std::make_unique<ImportedStore>(packed);
    } catch (const IoError&) {  // damaged: packed again
    }
  }
  remove_stale(folder, prefix + "-");
  if (on_import) {
    on_import(fmt::format("data: {} is imported once: athanor pack writes its {:.1f} MB into {}",
                          athanor::printable(path.string()), static_cast<double>(bytes) * 1e-6,
                          athanor::printable(packed.string())));
  }
  pack(path, fields, labels, packed, lock);
  return std::make_unique<ImportedStore>(packed);
}

}  // namespace athanor
