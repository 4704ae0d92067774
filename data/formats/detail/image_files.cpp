#include "data/formats/detail/image_files.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <iterator>
#include <set>
#include <system_error>
#include <utility>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "data/detail/sample_id.h"
#include "data/formats/detail/bytes.h"
#include "data/image/webp.h"
#include "tensor/base/error.h"

namespace athanor::detail {
namespace {

constexpr char kHidden[] = "hidden files or folders", kOfPrograms[] = "folders of other programs",
               kMetAgain[] = "folders that a link leads to twice";

/// From the last point on, in lower case.
std::string suffix_named(std::string_view file) {
  return lower_case(file.substr(std::min(file.rfind('.'), file.size())));
}

/// Whether `folder`, a link, leads to `inner` or to a folder around it: its images would be found again.
bool leads_up(const std::filesystem::path& folder, const std::filesystem::path& inner) {
  std::error_code error;
  if (!std::filesystem::is_symlink(folder, error)) return false;
  const std::filesystem::path outside = std::filesystem::canonical(folder, error);
  if (error) return false;
  const std::filesystem::path inside = std::filesystem::canonical(inner, error);
  return !error &&
         std::mismatch(outside.begin(), outside.end(), inside.begin(), inside.end()).first == outside.end();
}

/// Folders, each of which counts once, by whatever names it is found.
class KnownFolders {
 public:
  /// Returns whether it is a new one.
  bool add(const std::filesystem::path& folder) {
    struct stat status {};
    return ::stat(folder.c_str(), &status) != 0 || known_.emplace(status.st_dev, status.st_ino).second;
  }

 private:
  std::set<std::pair<dev_t, ino_t>> known_;
};

/// Begins to list a folder. One whose files cannot be opened is an error, too.
std::filesystem::directory_iterator listed(const std::filesystem::path& folder, std::error_code& error) {
  std::filesystem::directory_iterator first(folder, error);
  if (!error && ::faccessat(AT_FDCWD, folder.c_str(), X_OK, AT_EACCESS) != 0)
    error.assign(errno, std::generic_category());
  return first;
}

}  // namespace

std::optional<Codec> codec_of(std::span<const std::byte> bytes) {
  if (text_of(bytes).starts_with("\xff\xd8\xff")) return Codec::jpeg;
  if (text_of(bytes).starts_with("\x89PNG\r\n\x1a\n")) return Codec::png;
  if (WebpDecoder::recognises(bytes)) return Codec::webp;
  return std::nullopt;
}

std::optional<Codec> codec_named(std::string_view file) {
  const std::string end = suffix_named(file);
  if (end == ".png") return Codec::png;
  if (end == ".webp") return Codec::webp;
  if (end == ".jpg" || end == ".jpeg" || end == ".jpe" || end == ".jfif") return Codec::jpeg;
  return std::nullopt;
}

std::vector<std::string> names_in(const std::filesystem::path& folder, const char* format) {
  std::vector<std::string> names;
  std::error_code error;
  for (auto at = listed(folder, error); !error && at != end(at); at.increment(error)) {
    names.push_back(at->path().filename().string());
  }
  if (error) {
    fail<IoError>("{}: {} must be a readable folder, but got: {}", format, folder.string(), error.message());
  }
  std::sort(names.begin(), names.end());
  return names;
}

bool is_made_by_programs(std::string_view folder) {
  constexpr std::string_view kNames[]{"__macosx",     "@eadir",   "lost+found",
                                      "$recycle.bin", "#recycle", "@recycle"};
  return std::find(std::begin(kNames), std::end(kNames), lower_case(folder)) != std::end(kNames);
}

std::vector<std::string> folders_among(const std::vector<std::string>& names,
                                       const std::filesystem::path& folder, const char* wanted,
                                       std::vector<Unused>& unused) {
  std::vector<std::string> folders, links;
  KnownFolders known;
  for (const std::string& name : names) {
    std::error_code error;
    if (name.starts_with('.')) {
      count_unused(unused, kHidden, name);
    } else if (!std::filesystem::is_directory(folder / name, error)) {
      count_unused(unused, fmt::format("{} beside {}", codec_named(name) ? "images" : "files", wanted), name);
    } else if (is_made_by_programs(name)) {
      count_unused(unused, kOfPrograms, name);
    } else if (leads_up(folder / name, folder)) {
      count_unused(unused, kMetAgain, name + '/');
    } else if (std::filesystem::is_symlink(folder / name, error)) {
      links.push_back(name);
    } else {
      known.add(folder / name);
      folders.push_back(name);
    }
  }
  for (const std::string& name : links) {
    if (known.add(folder / name)) {
      folders.push_back(name);
    } else {
      count_unused(unused, kMetAgain, name + '/');
    }
  }
  std::sort(folders.begin(), folders.end());
  return folders;
}

namespace {

class Walker {
 public:
  Walker(const char* format, std::filesystem::path start, std::string shown, bool keep_walking)
      : format_(format), start_(std::move(start)), shown_(std::move(shown)), keep_walking_(keep_walking) {}

  void look_into(const std::filesystem::path& folder, const std::string& within) {
    if (!known_.add(folder) || (!within.empty() && leads_up(folder, start_)))
      return pass_over(kMetAgain, within);
    std::error_code error;
    std::vector<std::string> folders;
    for (auto at = listed(folder, error); !error && at != end(at); at.increment(error)) {
      const std::string name = at->path().filename().string(), whole = within + name;
      std::error_code ignored;
      if (name.starts_with('.')) {
        pass_over(kHidden, whole);
        continue;
      }
      const std::filesystem::file_status status = at->status(ignored);
      if (std::filesystem::is_directory(status)) {
        if (is_made_by_programs(name)) {
          pass_over(kOfPrograms, whole);
        } else {
          folders.push_back(name);
        }
      } else if (!std::filesystem::is_regular_file(status)) {
        pass_over(at->is_symlink(ignored) ? "links that lead to no file" : "pipes, sockets or devices",
                  whole);
      } else if (const std::optional<Codec> codec = codec_named(name)) {
        found_.files.push_back({whole, *codec});
      } else {
        const std::string suffix = suffix_named(name);
        pass_over(suffix == ".heic" || suffix == ".heif" ? kHeic : "files of another type", whole);
      }
    }
    std::sort(folders.begin(), folders.end());  // of two names of one folder, the first counts everywhere
    for (const std::string& name : folders) look_into(folder / name, within + name + '/');
    if (!error) return;
    if (!keep_walking_)
      fail<IoError>("{}: {} must be a readable folder, but got: {}", format_, folder.string(),
                    error.message());
    pass_over(kUnreadable, within);
  }

  ImageFiles result() {
    std::sort(found_.files.begin(), found_.files.end(),
              [](const ImageFiles::File& a, const ImageFiles::File& b) { return a.name < b.name; });
    return std::move(found_);
  }

 private:
  void pass_over(const char* cause, const std::string& name) {
    count_unused(found_.unused, cause, shown_ + name);
  }

  const char* format_;
  std::filesystem::path start_;
  std::string shown_;
  bool keep_walking_;
  KnownFolders known_;
  ImageFiles found_;
};

}  // namespace

ImageFiles find_images(const std::filesystem::path& folder, const char* format, const std::string& shown,
                       bool keep_walking) {
  Walker walker(format, folder, shown, keep_walking);
  walker.look_into(folder, "");
  return walker.result();
}

std::size_t append_file(const RegularFile& file, std::vector<std::byte>& to, std::size_t from,
                        const char* format, const std::function<std::string()>& name) {
  constexpr std::int64_t kMax = std::int64_t{1} << 30;
  const auto refuse = [&](const std::string& why) { fail<IoError>("{}: {}: {}", format, name(), why); };
  if (!file.problem().empty()) refuse(file.problem());
  const std::int64_t bytes = file.bytes();
  if (bytes > kMax) refuse(fmt::format("must have at most 1 GiB, but has {} bytes", bytes));
  const std::size_t end = from + static_cast<std::size_t>(bytes);
  if (to.size() < end) to.resize(end);
  const auto got = static_cast<std::int64_t>(file.read_at(0, std::span(to).subspan(from, end - from)));
  if (got != bytes) {
    refuse(errno != 0 ? fmt::format("offset {}: cannot be read: {}", got, std::strerror(errno))
                      : fmt::format("offset {}: must have {} bytes, but ends here", got, bytes));
  }
  return end;
}

std::uint64_t file_id(const std::filesystem::path& path, int folder, std::int64_t files) {
  constexpr std::int64_t kMostOpened = 5'000;
  struct stat status {};
  if (!is_looked_into(files) || ::fstatat(folder, path.c_str(), &status, 0) != 0) return 0;
  kernels::HashOf hash;
  hash.add(status.st_size);
  if (files <= kMostOpened) {
    const RegularFile file(path, folder);
    std::vector<std::byte> head(static_cast<std::size_t>(std::min(file.bytes(), compared_bytes(files))));
    hash.add(crc32c(std::span(head).first(file.read_at(0, head))));
  }
  return hash.value();
}

}  // namespace athanor::detail
