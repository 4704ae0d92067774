#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include <zlib.h>

// Writes files as torch.save() does, and files that it would never write.

namespace athanor::test {

template <class T> std::string bytes_of(const std::vector<T>& values) {
  return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T)};
}
inline std::string little(std::uint64_t value, int bytes) {
  std::string text;
  for (int i = 0; i < bytes; ++i) text += static_cast<char>(value >> 8 * i & 0xff);
  return text;
}

/// A pickle, opcode by opcode.
struct Pickle {
  std::string bytes = "\x80\x02";

  Pickle& op(const std::string& opcode) { return bytes += opcode, *this; }
  Pickle& global(const std::string& module, const std::string& name) {
    return op("c" + module + "\n" + name + "\n");
  }
  Pickle& text(const std::string& text) { return op("X" + little(text.size(), 4) + text); }
  Pickle& integer(std::int64_t value) {
    return op("\x8a\x08" + little(static_cast<std::uint64_t>(value), 8));
  }
  Pickle& tuple(const std::vector<std::int64_t>& values) {
    op("(");
    for (const std::int64_t value : values) integer(value);
    return op("t");
  }
};

/// A tensor as a pickle tells of it, and the storage it is in.
struct SavedTensor {
  std::string name;
  std::string type = "FloatStorage";
  std::string key = "0";
  std::int64_t numel = 0;  ///< of the storage
  std::int64_t offset = 0;
  std::vector<std::int64_t> sizes, strides;
  std::vector<std::int64_t> view = {};  ///< first and count: a part of the storage, as old files have it
};

/// Pushes a tensor; `old` files say of each storage whether it is a view.
inline void push(Pickle& pickle, const SavedTensor& tensor, bool old) {
  pickle.global("torch._utils", "_rebuild_tensor_v2").op("((").text("storage").global("torch", tensor.type);
  pickle.text(tensor.key).text("cpu").integer(tensor.numel);
  if (!tensor.view.empty())
    pickle.op("(").text(tensor.key + "view").integer(tensor.view[0]).integer(tensor.view[1]).op("t");
  else if (old)
    pickle.op("N");
  pickle.op("tQ").integer(tensor.offset).tuple(tensor.sizes).tuple(tensor.strides).op("\x89");
  pickle.global("collections", "OrderedDict").op(")RtR");
}

/// A state_dict: an OrderedDict with attributes.
inline void push_state(Pickle& pickle, const std::vector<SavedTensor>& tensors, bool old = false) {
  pickle.global("collections", "OrderedDict").op(")Rq\x01(");
  for (const SavedTensor& tensor : tensors) {
    pickle.text(tensor.name);
    push(pickle, tensor, old);
  }
  pickle.op("u}").text("_metadata").global("collections", "OrderedDict").op(")Rsb");
}
inline std::string state_pickle(const std::vector<SavedTensor>& tensors, bool old = false) {
  Pickle pickle;
  push_state(pickle, tensors, old);
  return pickle.op(".").bytes;
}

using Members = std::vector<std::pair<std::string, std::string>>;

/// A zip file of members that are stored; as ZIP64, sizes and places are in fields of 64 bits alone.
inline std::string zip_of(const Members& members, bool zip64 = false, std::size_t alignment = 64) {
  std::string file, directory;
  for (const auto& [name, content] : members) {
    const std::string crc = little(
        crc32(0, reinterpret_cast<const Bytef*>(content.data()), static_cast<uInt>(content.size())), 4);
    const std::uint64_t local = file.size(), size = content.size(), none = 0xffffffff;
    std::size_t padding = 0;
    while ((file.size() + 30 + name.size() + 4 + padding) % alignment != 0) ++padding;
    const std::string sizes = zip64 ? little(none, 4) + little(none, 4) : little(size, 4) + little(size, 4);
    const std::string extra64 =
        zip64 ? little(1, 2) + little(24, 2) + little(size, 8) + little(size, 8) + little(local, 8) : "";
    file += "PK\x03\x04" + little(0, 4) + little(0, 2) + little(0, 4) + crc + sizes + little(name.size(), 2) +
            little(4 + padding, 2) + name + "FB" + little(padding, 2) + std::string(padding, 'Z') + content;
    directory += "PK\x01\x02" + little(0, 4) + little(0, 4) + little(0, 4) + crc + sizes +
                 little(name.size(), 2) + little(extra64.size(), 2) + little(0, 2) + little(0, 8) +
                 little(zip64 ? none : local, 4) + name + extra64;
  }
  const std::uint64_t at = file.size(), count = members.size(), end64 = at + directory.size();
  file += directory;
  if (zip64) {
    file += "PK\x06\x06" + little(44, 8) + little(45, 2) + little(45, 2) + little(0, 8) + little(count, 8) +
            little(count, 8) + little(directory.size(), 8) + little(at, 8);
    file += "PK\x06\x07" + little(0, 4) + little(end64, 8) + little(1, 4);
  }
  const std::uint64_t cut = zip64 ? 0xffffffff : 0;
  return file + "PK\x05\x06" + little(0, 4) + little(zip64 ? 0xffff : count, 2) +
         little(zip64 ? 0xffff : count, 2) + little(directory.size() | cut, 4) + little(at | cut, 4) +
         little(0, 2);
}

/// Storages: their keys and their bytes.
using SavedStorages = Members;

inline std::string new_torch_file(const std::string& pickle, const SavedStorages& storages,
                                  bool zip64 = false, std::size_t alignment = 64) {
  Members members = {{"weights/data.pkl", pickle}, {"weights/byteorder", "little"}};
  for (const auto& [key, content] : storages) members.emplace_back("weights/data/" + key, content);
  members.emplace_back("weights/version", "3\n");
  return zip_of(members, zip64, alignment);
}

/// The older form. `elements` of each storage stand before its bytes.
inline std::string old_torch_file(const std::string& pickle, const SavedStorages& storages,
                                  const std::vector<std::uint64_t>& elements) {
  std::string file = "\x80\x02\x8a\x0al\xfc\x9c\x46\xf9 j\xa8P\x19.\x80\x02M\xe9\x03.";
  file += Pickle().op("}(").text("protocol_version").integer(1001).text("little_endian").op("\x88u.").bytes;
  file += pickle;
  Pickle keys;
  keys.op("](");
  for (const auto& [key, content] : storages) keys.text(key);
  file += keys.op("e.").bytes;
  for (std::size_t i = 0; i < storages.size(); ++i) file += little(elements[i], 8) + storages[i].second;
  return file;
}

}  // namespace athanor::test
