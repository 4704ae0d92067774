#include <memory>
#include <utility>

#include <lmdb.h>

#include "data/formats/crc32c.h"
#include "data/formats/detail/bytes.h"
#include "data/formats/detail/indexed_store.h"
#include "data/formats/detail/lmdb_tree.h"
#include "data/formats/detail/writing.h"
#include "data/formats/lmdb.h"
#include "tensor/error.h"

namespace athanor {
namespace {

constexpr std::size_t kFirstMap = std::size_t{64} << 20;
constexpr std::size_t kBatch = std::size_t{16} << 20;  // bytes per transaction, held in memory

std::filesystem::path target(const std::filesystem::path& path) {
  return path.extension() == ".mdb" ? path : path / "data.mdb";
}

class LmdbWriter final : public SampleWriter {
 public:
  explicit LmdbWriter(const std::filesystem::path& path) : folder_(target(path)), file_(target(path)) {
    MDB_env* environment = nullptr;
    check(mdb_env_create(&environment), "start");
    environment_.reset(environment);
    check(mdb_env_set_mapsize(environment, map_), "size");
    // Only this process writes to the file, which is private until it is flushed at the end.
    check(mdb_env_open(environment, file_.temporary().c_str(), MDB_NOSUBDIR | MDB_NOLOCK | MDB_NOSYNC, 0666),
          "create");
  }

  ~LmdbWriter() override {
    if (transaction_) mdb_txn_abort(transaction_);
  }

  void add(const StoredSample& sample) override {
    detail::check_sample(sample, count_, "lmdb");
    detail::ByteWriter out;
    out.bytes.reserve(static_cast<std::size_t>(detail::kLmdbHeader) + sample.bytes.size());
    out.add(detail::kLmdbMagic).le(static_cast<std::uint32_t>(sample.codec)).le(sample.label);
    for (const std::int64_t side : {sample.height, sample.width, sample.channels}) {
      out.le(static_cast<std::uint32_t>(sample.codec == Codec::raw ? side : 0));
    }
    out.le(crc32c(sample.bytes, crc32c(out.bytes))).add(sample.bytes);
    std::vector<std::byte>& value = out.bytes;

    make_room(value.size());
    if (!transaction_) begin();
    auto key = detail::stored_be(static_cast<std::uint64_t>(count_));
    MDB_val key_view{key.size(), key.data()}, value_view{value.size(), value.data()};
    check(mdb_put(transaction_, database_, &key_view, &value_view, MDB_APPEND), "write");
    ++count_;
    if ((batch_ += value.size()) >= kBatch) commit_batch();
  }

  void finish() override {
    detail::check_some(count_, "lmdb");
    commit_batch();
    check(mdb_env_sync(environment_.get(), 1), "flush");
    environment_.reset();
    file_.commit();
  }

 private:
  struct Close {
    void operator()(MDB_env* environment) const { mdb_env_close(environment); }
  };

  void check(int code, const char* what) const {
    if (code != 0) {
      detail::fail<IoError>("lmdb: cannot {} {} at sample {}: {}", what, file_.temporary().string(), count_,
                            mdb_strerror(code));
    }
  }

  void begin() {
    check(mdb_txn_begin(environment_.get(), nullptr, 0, &transaction_), "begin a transaction of");
    check(mdb_dbi_open(transaction_, nullptr, 0, &database_), "open the database of");
  }

  void commit_batch() {
    batch_ = 0;
    if (transaction_) check(mdb_txn_commit(std::exchange(transaction_, nullptr)), "write");
  }

  /// The map's size is a preset limit: it grows between transactions. One page more per value, and one for
  /// the tree, is more than needed.
  void make_room(std::size_t bytes) {
    constexpr std::size_t kPage = 32768;
    used_ += bytes + 2 * kPage;
    if (used_ < map_) return;
    commit_batch();
    while (map_ <= used_) map_ *= 2;
    check(mdb_env_set_mapsize(environment_.get(), map_), "enlarge");
  }

  detail::FolderOf folder_;
  AtomicFile file_;
  std::unique_ptr<MDB_env, Close> environment_;
  MDB_txn* transaction_ = nullptr;
  MDB_dbi database_ = 0;
  std::size_t map_ = kFirstMap, used_ = kFirstMap / 2, batch_ = 0;
  std::int64_t count_ = 0;
};

}  // namespace

std::unique_ptr<SampleWriter> create_lmdb(const std::filesystem::path& path) {
  return std::make_unique<LmdbWriter>(path);
}

}  // namespace athanor
