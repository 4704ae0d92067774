#include "data/formats/detail/lmdb_tree.h"

#include <string>
#include <string_view>

#include "data/formats/detail/bytes.h"
#include "tensor/error.h"

namespace athanor::detail {
namespace {

// A page is a header of 16 bytes (its number: u64; 2 unused; flags: u16; lower, upper: u16, the bounds of the
// free space) and, up to `lower`, the offsets (u16) of its nodes. Pages 0 and 1 are meta pages; the newer one
// is valid.
constexpr std::int64_t kPageHeader = 16, kFlags = 10, kLower = 12;
constexpr std::uint16_t kBranch = 0x01, kLeaf = 0x02, kOverflow = 0x04, kMetaPage = 0x08;

// A meta page: magic and version (u32), an address and a size (u64), the free and the main database, the last
// page, the transaction. A database: the page size, of the free one (u32), flags and depth (u16), counts of
// pages (3 u64), of entries (u64), the root (u64).
constexpr std::uint32_t kMagic = 0xbeefc0de, kVersion = 1;
constexpr std::int64_t kMetaBytes = 136, kFree = 24, kMain = 72, kTransaction = 128;
constexpr std::int64_t kDbFlags = 4, kDbDepth = 6, kDbEntries = 32, kDbRoot = 40;
constexpr std::int64_t kMinPage = 256, kMaxPage = 32768;

// A node: low and high half of a size or of a page's number (u16 each), flags or the number's highest part
// (u16), the key's length (u16), the key, the data; of large data the number of the first of its pages.
constexpr std::int64_t kNodeHeader = 8, kPageNumber = 8;
constexpr std::uint16_t kBig = 0x01, kSubtree = 0x02, kDuplicates = 0x04;

class Tree {
 public:
  explicit Tree(const FileBytes& file) : file_(file), pages_(file) {
    std::int64_t newest = meta(0);
    page_ = number<std::uint32_t>(newest + kFree);
    if (page_ < kMinPage || page_ > kMaxPage || (page_ & (page_ - 1)) != 0) {
      file_.fail(newest + kFree, "the page size must be a power of two in [{}, {}], but is {}", kMinPage,
                 kMaxPage, page_);
    }
    const std::int64_t other = meta(page_);
    if (number<std::uint64_t>(other + kTransaction) > number<std::uint64_t>(newest + kTransaction))
      newest = other;
    main_ = newest + kMain;
  }

  std::vector<IndexEntry> values() {
    if (const auto flags = number<std::uint16_t>(main_ + kDbFlags); flags != 0) {
      file_.fail(main_ + kDbFlags, "the main database must have no flags, but has {:#06x}", flags);
    }
    const auto entries = number<std::uint64_t>(main_ + kDbEntries);
    if (entries == 0)
      file_.fail(main_ + kDbEntries, "the database must have at least one entry, but has none");
    walk(number<std::uint64_t>(main_ + kDbRoot), number<std::uint16_t>(main_ + kDbDepth));
    if (entries != values_.size()) {
      file_.fail(main_ + kDbEntries, "the database must have {} entries, but has {}", entries,
                 values_.size());
    }
    return std::move(values_);
  }

 private:
  template <class T> T number(std::int64_t offset) {
    return load_le<T>(pages_.at(offset, static_cast<std::int64_t>(sizeof(T)), "a number"));
  }

  /// Offset of the fields of the meta page at `offset`.
  std::int64_t meta(std::int64_t offset) {
    const std::int64_t at = offset + kPageHeader;
    file_.must_have(at, kMetaBytes, "a meta page");
    if ((number<std::uint16_t>(offset + kFlags) & kMetaPage) == 0 || number<std::uint32_t>(at) != kMagic ||
        number<std::uint32_t>(at + 4) != kVersion) {
      file_.fail(offset, "must be a meta page of a 64-bit little-endian LMDB, but is not");
    }
    return at;
  }

  /// The offset of a page, which must be of one of these kinds.
  std::int64_t page(std::uint64_t index, std::uint16_t kinds, std::int64_t named_at) {
    const auto pages = static_cast<std::uint64_t>(file_.size() / page_);
    if (index < 2 || index >= pages) {
      file_.fail(named_at, "a page number must be in [2, {}), but is {}", pages, index);
    }
    const auto offset = static_cast<std::int64_t>(index) * page_;
    if (number<std::uint64_t>(offset) != index || (number<std::uint16_t>(offset + kFlags) & kinds) == 0) {
      file_.fail(offset,
                 "page {} must have its own number and kind {:#04x}, but has number {} and kind {:#04x}",
                 index, kinds, number<std::uint64_t>(offset), number<std::uint16_t>(offset + kFlags));
    }
    return offset;
  }

  std::int64_t count_nodes(std::int64_t offset) {
    const std::int64_t lower = number<std::uint16_t>(offset + kLower);
    if (lower < kPageHeader || lower > page_ || lower % 2 != 0) {
      file_.fail(offset + kLower, "the end of a page's nodes must be in [16, {}], but is {}", page_, lower);
    }
    return (lower - kPageHeader) / 2;
  }

  /// The offset of node `i` of the page at `offset`.
  std::int64_t node(std::int64_t offset, std::int64_t i) {
    const std::int64_t at = number<std::uint16_t>(offset + kPageHeader + 2 * i);
    if (at < kPageHeader || at > page_ - kNodeHeader) {
      file_.fail(offset + kPageHeader + 2 * i, "a node must lie in its page, but lies at {}", at);
    }
    return offset + at;
  }

  /// Depth first, from left to right. A valid tree has no more pages than the file.
  void walk(std::uint64_t root, std::int64_t depth) {
    struct Level {
      std::int64_t page, next;
    };
    constexpr std::int64_t kMaxDepth = 32;
    if (depth < 1 || depth > kMaxDepth) {
      file_.fail(main_ + kDbDepth, "the depth must be in [1, {}], but is {}", kMaxDepth, depth);
    }
    std::vector<Level> path{{page(root, kBranch | kLeaf, main_ + kDbRoot), 0}};
    std::int64_t visited = 1;
    while (!path.empty()) {
      Level& at = path.back();
      const bool is_leaf = (number<std::uint16_t>(at.page + kFlags) & kLeaf) != 0;
      if (is_leaf != (std::ssize(path) == depth)) {
        file_.fail(at.page, "every leaf must lie at depth {}, but this page does not", depth);
      }
      if (is_leaf) {
        for (std::int64_t i = 0; i < count_nodes(at.page); ++i) add_value(at.page, node(at.page, i));
        path.pop_back();
      } else if (at.next == count_nodes(at.page)) {
        path.pop_back();
      } else {
        const std::int64_t child = node(at.page, at.next++);
        const std::uint64_t index =
            number<std::uint32_t>(child) | std::uint64_t{number<std::uint16_t>(child + 4)} << 32;
        if (++visited > file_.size() / page_)
          file_.fail(child, "a page must have one parent, but one has more");
        path.push_back({page(index, kBranch | kLeaf, child), 0});
      }
    }
  }

  void add_value(std::int64_t page_offset, std::int64_t node) {
    const std::int64_t bytes = number<std::uint32_t>(node);
    const auto flags = number<std::uint16_t>(node + 4);
    if (flags & (kSubtree | kDuplicates)) {
      file_.fail(node + 4, "an entry must be a value, but is a database: only the main database can be read");
    }
    const std::int64_t key_bytes = number<std::uint16_t>(node + 6), data = node + kNodeHeader + key_bytes;
    const std::int64_t end = page_offset + page_, here = flags & kBig ? kPageNumber : bytes;
    if (data > end || here > end - data) {
      file_.fail(node, "an entry must lie in its page, but its {} bytes at {} do not", here, data);
    }
    const std::string_view key = text_of(pages_.at(node + kNodeHeader, key_bytes, "a key"));
    if (!values_.empty() && key <= last_key_)
      file_.fail(node, "the keys must be in ascending order, but are not");
    last_key_ = key;
    if (!(flags & kBig)) {
      values_.push_back({.offset = data, .bytes = bytes, .head = kLmdbHeader});
      return;
    }
    const std::int64_t first = page(number<std::uint64_t>(data), kOverflow, data) + kPageHeader;
    file_.must_have(first, bytes, "a value");
    values_.push_back({.offset = first, .bytes = bytes, .head = kLmdbHeader});
  }

  const FileBytes& file_;
  FilePages pages_;
  std::int64_t page_ = 0;
  std::int64_t main_ = 0;  ///< the main database, in the valid meta page
  std::vector<IndexEntry> values_;
  std::string last_key_;
};

}  // namespace

std::vector<IndexEntry> lmdb_values(const FileBytes& file) {
  return Tree(file).values();
}

}  // namespace athanor::detail
