// Files that are not what they seem: small ones that grow, and things that are no files.
#include <array>
#include <chrono>
#include <csignal>
#include <cstring>

#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>
#include <zlib.h>

#include "data/formats/cifar.h"
#include "data/formats/idx.h"
#include "data/formats/image_folder.h"
#include "data/formats/manifest.h"
#include "data/formats/mnist.h"
#include "data/formats/npy.h"
#include "data/formats/open.h"
#include "data/formats/packed.h"
#include "data/formats/raw.h"
#include "tensor/io/safetensors.h"
#include "tests/support/peak_memory.h"
#include "tests/support/stores.h"

namespace athanor::hostile_files_test {

using namespace test;

constexpr std::size_t kMany = std::size_t{32} << 20;     // what the small files grow to
constexpr std::int64_t kLittle = std::int64_t{8} << 20;  // what reading them may take

/// zlib's, of `head` and then `zeros` zero bytes; `window` says of which kind.
std::string deflated(const std::string& head, std::size_t zeros, int window) {
  z_stream stream{};
  EXPECT_EQ(deflateInit2(&stream, 6, Z_DEFLATED, window, 9, Z_DEFAULT_STRATEGY), Z_OK);
  const std::string content = head + std::string(zeros, '\0');
  std::string out(compressBound(content.size()) + 64, '\0');
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(content.data()));
  stream.avail_in = static_cast<uInt>(content.size());
  stream.next_out = reinterpret_cast<Bytef*>(out.data());
  stream.avail_out = static_cast<uInt>(out.size());
  EXPECT_EQ(deflate(&stream, Z_FINISH), Z_STREAM_END);
  out.resize(stream.total_out);
  deflateEnd(&stream);
  return out;
}
std::string gzip(const std::string& head, std::size_t zeros) {
  return deflated(head, zeros, 16 + MAX_WBITS);
}

std::string number(std::uint64_t value, int bytes, bool big_endian = false) {
  std::string text;
  for (int i = 0; i < bytes; ++i) text += static_cast<char>(value >> 8 * (big_endian ? bytes - 1 - i : i));
  return text;
}
std::string idx_header(const std::vector<std::uint32_t>& dims) {
  std::string text = number(0x800 + dims.size(), 4, true);
  for (const std::uint32_t dim : dims) text += number(dim, 4, true);
  return text;
}
std::string npy_header(const std::string& descr, const std::string& shape) {
  std::string text = "{'descr': '" + descr + "', 'fortran_order': False, 'shape': " + shape + ", }";
  text.resize(117, ' ');
  return std::string("\x93NUMPY\1\0\x76\0", 10) + text + "\n";
}

struct Member {
  std::string name, head;
  std::size_t zeros;
};

/// A zip archive of deflated members.
std::string zip(const std::vector<Member>& members) {
  std::string archive, directory;
  for (const auto& [name, head, zeros] : members) {
    const std::string whole = head + std::string(zeros, '\0'), data = deflated(head, zeros, -MAX_WBITS);
    const auto crc = crc32_z(0, reinterpret_cast<const Bytef*>(whole.data()), whole.size());
    const std::string common = number(20, 2) + number(0, 2) + number(8, 2) + number(0, 4) + number(crc, 4) +
                               number(data.size(), 4) + number(whole.size(), 4) + number(name.size(), 2);
    directory += "PK\1\2" + number(20, 2) + common + number(0, 4) + number(0, 4) + number(0, 4) +
                 number(archive.size(), 4) + name;
    archive += "PK\3\4" + common + number(0, 2) + name + data;
  }
  const std::size_t start = archive.size();
  return archive + directory + "PK\5\6" + number(0, 4) + number(members.size(), 2) +
         number(members.size(), 2) + number(directory.size(), 4) + number(start, 4) + number(0, 2);
}

using Values = std::initializer_list<std::string_view>;

/// Reading must fail in one line that names the file and the values, and take little memory.
void expect_cheap_refusal(const std::function<void()>& read, const std::string& file, Values values) {
  std::string message;
  const std::int64_t grown = peak_growth([&] { message = message_of<IoError>(read); });
  EXPECT_TRUE(names(message, {file}));
  EXPECT_TRUE(names(message, values));
  if (grown < 0) GTEST_SKIP() << "/proc/self/clear_refs cannot be written";
  EXPECT_LT(grown, kLittle);
}

TEST(PeakGrowth, IsSeen) {
  const std::int64_t grown = peak_growth([] { EXPECT_EQ(std::string(kMany, 'x').back(), 'x'); });
  EXPECT_TRUE(grown < 0 || grown > kLittle) << grown;
}

TEST(Idx, SizesAreComparedBeforeAnythingIsInflated) {
  const TempDir dir;
  const auto read = [&] { open_idx(dir / "images", {.labels = dir / "labels"}); };
  const std::string few = number(0x801, 4, true) + number(2, 4, true) + "ab";
  // More than the header says.
  write_file(dir / "images", gzip(idx_header({2, 4, 4}), kMany));
  write_file(dir / "labels", few);
  expect_cheap_refusal(read, "images", {"48"});
  // As much as it says, but not as many labels; or labels that cannot be.
  write_file(dir / "images", gzip(idx_header({1024, 128, 256}), kMany));
  expect_cheap_refusal(read, "labels", {"1024"});
  write_file(dir / "labels", number(0x901, 4, true) + number(1024, 4, true) + std::string(1024, '\xff'));
  expect_cheap_refusal(read, "labels", {"label", "[0, 2147483648)"});
  // The labels themselves.
  write_file(dir / "labels", gzip(number(0x801, 4, true) + number(1024, 4, true), kMany));
  expect_cheap_refusal(read, "labels", {"1032"});
  // More than so small a file can hold, and less than it says.
  write_file(dir / "labels", number(0x801, 4, true) + number(65536, 4, true) + std::string(65536, '\0'));
  write_file(dir / "images", gzip(idx_header({65536, 4096, 4096}), 1 << 20));
  expect_cheap_refusal(read, "images", {"1099511627792"});
  write_file(dir / "images", gzip(idx_header({65536, 4, 4}), (1 << 20) - 100));
  expect_cheap_refusal(read, "images", {"1048576", "1048476"});
}

TEST(Cifar, AGzipFileMustHoldRecordsBeforeItIsInflated) {
  const TempDir dir;
  write_file(dir / "c.bin.gz", gzip("", kMany));
  expect_cheap_refusal([&] { open_cifar(dir / "c.bin.gz", 10); }, "c.bin.gz", {"3073"});
  std::string lies = gzip("", kMany);
  lies.replace(lies.size() - 4, 4, number(3073, 4));
  write_file(dir / "c.bin.gz", lies);
  expect_cheap_refusal([&] { open_cifar(dir / "c.bin.gz", 10); }, "c.bin.gz", {"3073"});
}

TEST(Npz, SizesAreComparedBeforeAnythingIsInflated) {
  const TempDir dir;
  const auto read = [&] { open_npz(dir / "a.npz"); };
  const Member labels{"labels.npy", npy_header("|u1", "(2,)"), 2};
  if (holds(message_of<IoError>(read), "libzip")) GTEST_SKIP() << "built without libzip";
  write_file(dir / "a.npz", zip({{"images.npy", npy_header("|u1", "(2, 2, 2)"), 8}, labels}));
  EXPECT_NO_THROW(read());
  write_file(dir / "a.npz", zip({{"images.npy", npy_header("|u1", "(2, 2, 2)"), kMany}, labels}));
  expect_cheap_refusal(read, "images.npy", {"136"});
  write_file(dir / "a.npz", zip({{"images.npy", npy_header("|u1", "(1024, 128, 256)"), kMany}, labels}));
  expect_cheap_refusal(read, "labels.npy", {"1024"});
  const Member below{"labels.npy", npy_header("|i1", "(1024,)") + std::string(1024, '\xff'), 0};
  write_file(dir / "a.npz", zip({{"images.npy", npy_header("|u1", "(1024, 128, 256)"), kMany}, below}));
  expect_cheap_refusal(read, "labels.npy", {"label", "[0, 2147483648)"});
  const Member long_labels{"labels.npy", npy_header("<i8", "(2,)"), kMany};
  write_file(dir / "a.npz", zip({{"images.npy", npy_header("|u1", "(2, 2, 2)"), 8}, long_labels}));
  expect_cheap_refusal(read, "labels.npy", {"144"});
}

/// `read` must end at once: a reader that waits for the other end of a pipe is ended by the alarm.
void expect_refused(const std::function<void()>& read, const std::string& file, const char* kind) {
  SCOPED_TRACE(file);
  const auto began = std::chrono::steady_clock::now();
  ::alarm(300);
  const std::string message = message_of<IoError>(read);
  ::alarm(0);
  EXPECT_TRUE(names(message, {file, kind}));
  EXPECT_LT(std::chrono::steady_clock::now() - began, std::chrono::seconds(120));
}

TEST(NoFile, AFifoInsteadOfAFileIsRejectedAtOnce) {
  const TempDir dir;
  const auto fifo = [&](const std::string& name) {
    std::filesystem::create_directories((dir / name).parent_path());
    EXPECT_EQ(::mkfifo((dir / name).c_str(), 0600), 0);
    return dir / name;
  };
  for (const char* name : {"a.athp", "a.athp.json", "a.npy", "a.npz", "a.h5", "a.tar", "a.tfrecord", "a.mdb",
                           "x-idx3-ubyte", "a.bin", "a.bin.gz", "a.jpg"}) {
    const auto path = fifo(name);
    expect_refused([&] { open_samples(path); }, name, "FIFO");
    expect_refused([&] { format_of(path); }, name, "FIFO");
  }
  expect_refused([&] { PackedStore store(dir / "a.athp"); }, "a.athp", "FIFO");
  EXPECT_FALSE(PackedStore::recognises(dir / "a.athp"));
  expect_refused([&] { open_cifar(dir / "a.bin.gz", 10); }, "a.bin.gz", "FIFO");
  expect_refused([&] { open_manifest(dir / "a.athp.json"); }, "a.athp.json", "FIFO");
  expect_refused([&] { safetensors::load(dir / "a.npy"); }, "a.npy", "FIFO");
  // Files that other files lead to.
  write_file(dir / "b.bin", "pixels");
  fifo("b.json");
  expect_refused([&] { open_samples(dir / "b.bin"); }, "b.json", "FIFO");
  write_file(dir / "c-images-idx3-ubyte", idx_header({1, 1, 1}) + "p");
  fifo("c-labels-idx1-ubyte");
  expect_refused([&] { open_samples(dir / "c-images-idx3-ubyte"); }, "c-labels-idx1-ubyte", "FIFO");
  write_file(dir / "d.athp.json", R"({"format": "athanor manifest", "version": 1, "files": [)"
                                  R"({"name": "a.athp", "samples": 1, "bytes": 1, "content_id": ""}]})");
  expect_refused([&] { open_samples(dir / "d.athp.json"); }, "a.athp", "FIFO");
  fifo("mnist/train-images-idx3-ubyte");
  fifo("mnist/train-labels-idx1-ubyte");
  expect_refused([&] { mnist(dir / "mnist", Split::train); }, "mnist", "FIFO");
  fifo("photos/class/1.jpg");
  write_file(dir / "photos/class/2.jpg", "x");
  const ImageFolder photos(dir / "photos");
  ASSERT_EQ(photos.size(), 1) << "the FIFO is no image";
  std::filesystem::remove(dir / "photos/class/2.jpg");
  fifo("photos/class/2.jpg");
  std::vector<std::byte> scratch;
  expect_refused([&] { photos.fetch(0, scratch); }, "2.jpg", "FIFO");
}

// Another program writes over a data set that is being read.
TEST(ShorterFile, IsAnErrorInEveryFormat) {
  const TempDir dir;
  const auto raw = raw_samples(40, 16, 16, 3, 5);
  std::vector<OwnedSample> encoded;
  for (std::int64_t i = 0; i < 40; ++i) encoded.push_back(encoded_sample(Codec::png, 1000, i % 5));
  for (const char* name : {"images.npy", "a.tar", "a.tfrecord", "a-images-idx3-ubyte", "a.bin"}) {
    SCOPED_TRACE(name);
    write_all(create_samples(dir / name), name == std::string("a.tar") ? encoded : raw);
    const auto store = open_samples(dir / name);
    const std::filesystem::path file = dir / name;
    read_all(*store);
    std::filesystem::resize_file(file, 5000);
    EXPECT_ERROR(IoError, read_all(*store), file.string(), "5000");
  }
  write_file(dir / "c.bin", cifar_file(raw_samples(9, 32, 32, 3, 10), 10));
  const auto store = open_cifar(dir / "c.bin", 10);
  std::filesystem::resize_file(dir / "c.bin", 5000);
  EXPECT_ERROR(IoError, read_all(*store), "c.bin", "5000");
  EXPECT_EQ(store->label(8), 7) << "known without the sample";
}

TEST(NoFile, SocketsAndDevicesAreRejectedToo) {
  const TempDir dir;
  const int socket = ::socket(AF_UNIX, SOCK_STREAM, 0);
  sockaddr_un name{};
  name.sun_family = AF_UNIX;
  std::strncpy(name.sun_path, (dir / "a.npy").c_str(), sizeof name.sun_path - 1);
  ASSERT_EQ(::bind(socket, reinterpret_cast<const sockaddr*>(&name), sizeof name), 0);
  expect_refused([&] { open_samples(dir / "a.npy"); }, "a.npy", "socket");
  ::close(socket);
  std::filesystem::create_symlink("/dev/zero", dir / "b.npy");
  expect_refused([&] { open_samples(dir / "b.npy"); }, "b.npy", "device");
}

}  // namespace athanor::hostile_files_test
