#include "data/formats/import/cache.h"

#include <cerrno>
#include <cstdlib>
#include <cstring>

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include "data/formats/crc32c.h"
#include "data/formats/detail/bytes.h"
#include "data/formats/packed.h"
#include "data/formats/packed_writer.h"
#include "tensor/atomic_file.h"
#include "tensor/error.h"
#include "tensor/regular_file.h"

namespace athanor {
namespace {

namespace fs = std::filesystem;

/// Admits one process at a time.
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

 private:
  int file_;
};

/// The packed file, removed if it turns out to be damaged.
class ImportedStore final : public Dataset {
 public:
  explicit ImportedStore(const fs::path& path) : path_(path), packed_(path) {}

  std::int64_t size() const override { return packed_.size(); }
  const ImageSpec& spec() const override { return packed_.spec(); }
  StoredSample fetch(std::int64_t index, std::vector<std::byte>& scratch) const override {
    try {
      return packed_.fetch(index, scratch);
    } catch (const IoError& error) {
      std::error_code ignored;
      fs::remove(path_, ignored);
      detail::fail<IoError>("{}; the file was removed; open the source again to rebuild it", error.what());
    }
  }
  std::uint64_t sample_id(std::int64_t index) const override { return packed_.sample_id(index); }
  std::int64_t label(std::int64_t index) const override { return packed_.label(index); }
  std::optional<std::int64_t> image_bytes(std::int64_t index) const override {
    return packed_.image_bytes(index);
  }
  std::string where(std::int64_t index) const override { return packed_.where(index); }
  void will_need(std::int64_t first, std::int64_t count) const override { packed_.will_need(first, count); }

 private:
  fs::path path_;
  PackedStore packed_;
};

void pack(SampleSequence& from, const fs::path& to) {
  PackedWriter writer(to, {.classes = from.spec().classes});
  for (std::int64_t i = 0; i < from.size(); ++i) writer.add(from.next());
  writer.finish();
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

fs::path import_folder() {
  const char *cache = std::getenv("XDG_CACHE_HOME"), *home = std::getenv("HOME");
  fs::path folder;
  if (cache && cache[0] == '/') {
    folder = cache;
  } else if (home && home[0] == '/') {
    folder = fs::path(home) / ".cache";
  } else {
    detail::fail<IoError>("import: imported files need a cache folder; set XDG_CACHE_HOME to one");
  }
  return folder / "athanor" / "imported";
}

std::unique_ptr<Dataset> open_imported(const fs::path& path, std::string_view how,
                                       const std::function<std::unique_ptr<SampleSequence>()>& open,
                                       const ImportNotice& on_import) {
  const RegularFile file(path);
  if (!file.problem().empty()) detail::fail<IoError>("import: {} {}", path.string(), file.problem());
  std::error_code error;
  const std::string whole = fs::canonical(path, error).string();
  const auto time = fs::last_write_time(path, error).time_since_epoch().count();
  const fs::path folder = import_folder();
  fs::create_directories(folder, error);
  fs::permissions(folder, fs::perms::owner_all, error);
  const std::uint32_t id = crc32c(detail::bytes_of(how), crc32c(detail::bytes_of(whole)));
  const std::string prefix = fmt::format("{:.100}-{:08x}", path.stem().string(), id);  // names end at 255
  const fs::path packed = folder / fmt::format("{}-{}-{}.athp", prefix, file.bytes(), time);

  const Lock lock(folder / (prefix + ".lock"));
  if (fs::exists(packed, error)) {
    try {
      return std::make_unique<ImportedStore>(packed);
    } catch (const IoError&) {  // damaged: repacked
    }
  }
  remove_stale(folder, prefix + "-");
  const std::unique_ptr<SampleSequence> samples = open();
  if (on_import) {
    const double mb = static_cast<double>(samples->size() * samples->spec().bytes()) * 1e-6;
    on_import(
        fmt::format("data: {} can only be read sequentially: packing its {} samples, {:.1f} MB, once into {}",
                    path.string(), samples->size(), mb, packed.string()));
  }
  pack(*samples, packed);
  return std::make_unique<ImportedStore>(packed);
}

}  // namespace athanor
