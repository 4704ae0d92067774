#include "checkpoint.h"

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <stdexcept>
#include <string_view>
#include <vector>

#include <fcntl.h>
#include <unistd.h>

namespace engine {
namespace fs = std::filesystem;
namespace {

constexpr std::string_view kMagic = "engine checkpoint 1\n";
constexpr std::string_view kUnfinished = ".tmp", kExtension = ".ckpt";

// The file: the magic line; how many integers, and each with its name; how many tensors, and each with its
// name, its shape and its values; the checksum of all that. Numbers take eight bytes, and a text or a shape
// begins with its size.

class Writer {
 public:
  void integer(std::int64_t number) { bytes(&number, sizeof number); }
  void text(const std::string& text) {
    integer(static_cast<std::int64_t>(text.size()));
    bytes(text.data(), text.size());
  }
  void bytes(const void* from, std::size_t size) { written_.append(static_cast<const char*>(from), size); }
  const std::string& written() const { return written_; }

 private:
  std::string written_;
};

std::string pack(const State& state) {
  Writer out;
  out.bytes(kMagic.data(), kMagic.size());
  out.integer(static_cast<std::int64_t>(state.integers.size()));
  for (const auto& [name, number] : state.integers) {
    out.text(name);
    out.integer(number);
  }
  out.integer(static_cast<std::int64_t>(state.tensors.size()));
  for (const auto& [name, tensor] : state.tensors) {
    out.text(name);
    out.integer(tensor.rank());
    for (const std::int64_t size : tensor.shape()) out.integer(size);
    const std::vector<float> values = tensor.values();
    out.bytes(values.data(), values.size() * sizeof(float));
  }
  out.integer(static_cast<std::int64_t>(hash_bytes(out.written().data(), out.written().size())));
  return out.written();
}

// Believes no size: what does not fit into the rest of the file is an error.
class Reader {
 public:
  explicit Reader(std::string_view bytes) : left_(bytes) {}
  std::string_view take(std::int64_t size) {
    if (size < 0 || size > static_cast<std::int64_t>(left_.size()))
      throw std::runtime_error("it ends too early");
    const std::string_view taken = left_.substr(0, static_cast<std::size_t>(size));
    left_.remove_prefix(taken.size());
    return taken;
  }
  std::int64_t integer() {
    std::int64_t number;
    std::memcpy(&number, take(sizeof number).data(), sizeof number);
    return number;
  }
  std::string text() { return std::string(take(integer())); }
  Tensor tensor() {
    Shape shape(static_cast<std::size_t>(count(16)));
    std::int64_t room =
        static_cast<std::int64_t>(left_.size()) / 4;  // so that the product of the sizes cannot overflow
    for (std::int64_t& size : shape) {
      size = count(room);
      room /= std::max<std::int64_t>(size, 1);
    }
    std::vector<float> values(static_cast<std::size_t>(numel(shape)));
    const std::string_view bytes = take(numel(shape) * 4);
    if (!bytes.empty()) std::memcpy(values.data(), bytes.data(), bytes.size());
    return Tensor(shape, std::move(values));
  }

 private:
  std::int64_t count(std::int64_t most) {
    const std::int64_t number = integer();
    if (number < 0 || number > most) throw std::runtime_error("a tensor has an impossible shape");
    return number;
  }
  std::string_view left_;
};

State unpack(std::string_view bytes) {
  constexpr std::size_t kHash = sizeof(std::uint64_t);
  if (!bytes.starts_with(kMagic) || bytes.size() < kMagic.size() + kHash)
    throw std::runtime_error("it does not begin as one");
  const std::string_view body = bytes.substr(0, bytes.size() - kHash);
  if (static_cast<std::uint64_t>(Reader(bytes.substr(body.size())).integer()) !=
      hash_bytes(body.data(), body.size()))
    throw std::runtime_error("its checksum is not that of its bytes");
  State state;
  Reader in(body.substr(kMagic.size()));
  for (std::int64_t left = in.integer(); left > 0; --left) {
    std::string name = in.text();
    state.integers[name] = in.integer();
  }
  for (std::int64_t left = in.integer(); left > 0; --left) {
    std::string name = in.text();
    state.tensors.insert_or_assign(name, in.tensor());
  }
  return state;
}

// An open file or folder.
class Descriptor {
 public:
  Descriptor(const std::string& path, int flags) : path_(path), number_(::open(path.c_str(), flags, 0644)) {
    if (number_ < 0) fail("opened");
  }
  ~Descriptor() { ::close(number_); }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;

  void write(std::string_view bytes) {
    while (!bytes.empty()) {
      const ssize_t written = ::write(number_, bytes.data(), bytes.size());
      if (written < 0 && errno != EINTR) fail("written");
      if (written > 0) bytes.remove_prefix(static_cast<std::size_t>(written));
    }
  }
  void sync() {
    if (::fsync(number_) != 0) fail("synced");
  }

 private:
  [[noreturn]] void fail(const std::string& what) const {
    throw std::runtime_error("save_state: " + path_ + " cannot be " + what + ": " + std::strerror(errno));
  }
  std::string path_;
  int number_;
};

// Paths of the checkpoints in a folder, in the order of their steps.
std::vector<fs::path> checkpoints_in(const std::string& folder) {
  std::vector<fs::path> found;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder))
    if (entry.path().extension() == kExtension) found.push_back(entry.path());
  std::sort(found.begin(), found.end());
  return found;
}

}  // namespace

void save_state(const std::string& path, const State& state) {
  const std::string unfinished = path + std::string(kUnfinished);
  try {
    Descriptor file(unfinished, O_WRONLY | O_CREAT | O_TRUNC);
    file.write(pack(state));
    file.sync();  // the contents, before the name stands for them
    fs::rename(unfinished, path);
  } catch (...) {
    std::error_code ignored;
    fs::remove(unfinished, ignored);
    throw;
  }
  const fs::path folder = fs::path(path).parent_path();
  Descriptor(folder.empty() ? "." : folder.string(), O_RDONLY | O_DIRECTORY).sync();  // the name
}

State load_state(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) throw std::runtime_error("load_state: there is no file " + path);
  const std::string bytes{std::istreambuf_iterator<char>(file), {}};
  try {
    return unpack(bytes);
  } catch (const std::runtime_error& error) {
    throw std::runtime_error("load_state: " + path + " is not a whole checkpoint: " + error.what());
  }
}

CheckpointFolder::CheckpointFolder(std::string path, int keep) : path_(std::move(path)), keep_(keep) {
  if (keep_ < 1)
    throw std::invalid_argument("CheckpointFolder: keep must be at least 1, but is " + std::to_string(keep_));
  fs::create_directories(path_);
  std::vector<fs::path> unfinished;
  for (const fs::directory_entry& entry : fs::directory_iterator(path_))
    if (entry.path().extension() == kUnfinished) unfinished.push_back(entry.path());
  for (const fs::path& file : unfinished) fs::remove(file);
}

void CheckpointFolder::save(std::int64_t step, const State& state) const {
  if (step < 0)
    throw std::invalid_argument("CheckpointFolder: a step must be 0 or more, but is " + std::to_string(step));
  char name[40];
  std::snprintf(name, sizeof name, "step-%08lld", static_cast<long long>(step));
  const fs::path saved = fs::path(path_) / (name + std::string(kExtension));
  save_state(saved.string(), state);
  const std::vector<fs::path> all = checkpoints_in(path_);
  const auto newest = std::find(all.begin(), all.end(), saved);
  const auto oldest = newest - std::min<std::ptrdiff_t>(newest - all.begin(), keep_ - 1);
  for (auto file = all.begin(); file != all.end(); ++file)
    if (file < oldest || file > newest) fs::remove(*file);
}

std::optional<State> CheckpointFolder::newest(std::ostream& notes) const {
  std::vector<fs::path> all = checkpoints_in(path_);
  for (; !all.empty(); all.pop_back()) {
    try {
      return load_state(all.back().string());
    } catch (const std::runtime_error& error) {
      notes << "skipped: " << error.what() << "\n";
    }
  }
  return std::nullopt;
}

}  // namespace engine
