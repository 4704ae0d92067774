// Files of torch.save(), written here byte by byte; tests/programs/torch_weights.py has PyTorch itself write
// them.
#include "nn/torch/torch_file.h"

#include <cstring>
#include <random>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "tensor/base/error.h"
#include "tests/support/errors.h"
#include "tests/support/temp_dir.h"
#include "tests/support/torch_writer.h"

namespace athanor::torch_file_test {

using test::bytes_of;
using test::new_torch_file;
using test::old_torch_file;
using test::Pickle;
using test::SavedTensor;
using test::state_pickle;
using Names = std::vector<std::string>;

class TorchFile : public testing::Test {
 protected:
  StateDict load(const std::string& bytes) const {
    test::write_file(path(), bytes);
    return torch_file::load(path());
  }
  std::string error_of(const std::string& bytes) const {
    return test::message_of<IoError>([&] { (void)load(bytes); });
  }
  /// Of a pickle in a file that is otherwise in order.
  std::string error_of(const Pickle& pickle) const {
    return error_of(new_torch_file(pickle.bytes, {{"0", std::string(64, '\0')}}));
  }
  std::filesystem::path path() const { return folder_ / "x.pth"; }

  test::TempDir folder_;
};

const std::vector<float> kValues = {0.5f, -1, 2, 3e-40f, 4, 5};
const SavedTensor kMatrix{.name = "w", .numel = 6, .sizes = {2, 3}, .strides = {3, 1}};

/// The same file in both forms.
std::vector<std::string> both(const std::vector<SavedTensor>& tensors, const test::SavedStorages& storages,
                              const std::vector<std::uint64_t>& elements) {
  return {new_torch_file(state_pickle(tensors), storages),
          new_torch_file(state_pickle(tensors), storages, true),
          old_torch_file(state_pickle(tensors, true), storages, elements)};
}

TEST_F(TorchFile, EveryDtypeInEveryFormIsReadBitForBit) {
  const std::vector<std::pair<const char*, DType>> types = {
      {"DoubleStorage", DType::f64},    {"FloatStorage", DType::f32}, {"HalfStorage", DType::f16},
      {"BFloat16Storage", DType::bf16}, {"LongStorage", DType::i64},  {"IntStorage", DType::i32},
      {"ByteStorage", DType::u8},       {"BoolStorage", DType::u8}};
  std::vector<SavedTensor> tensors;
  test::SavedStorages storages;
  std::vector<std::uint64_t> elements;
  for (const auto& [type, dtype] : types) {
    const std::string key = std::to_string(tensors.size());
    tensors.push_back({.name = std::string("layer.") + type,
                       .type = type,
                       .key = key,
                       .numel = 5,
                       .sizes = {5},
                       .strides = {1}});
    std::string content;
    for (std::size_t i = 0; i < 5 * size_of(dtype); ++i) content += static_cast<char>(17 * i + 3);
    storages.emplace_back(key, content);
    elements.push_back(5);
  }
  for (const std::string& file : both(tensors, storages, elements)) {
    const StateDict read = load(file);
    ASSERT_EQ(read.size(), types.size());
    for (std::size_t i = 0; i < types.size(); ++i) {
      const Tensor& tensor = read.tensor(tensors[i].name, {5});
      EXPECT_EQ(tensor.dtype(), types[i].second) << types[i].first;
      EXPECT_EQ(std::memcmp(tensor.raw_data(), storages[i].second.data(), tensor.bytes()), 0)
          << types[i].first;
    }
  }
}

TEST_F(TorchFile, TensorsAreViewsOfTheirStorage) {
  const std::vector<SavedTensor> tensors = {
      kMatrix,
      {.name = "transposed", .numel = 6, .sizes = {3, 2}, .strides = {1, 3}},
      {.name = "row", .numel = 6, .offset = 3, .sizes = {3}, .strides = {1}},
      {.name = "scalar", .numel = 6, .offset = 5, .sizes = {}, .strides = {}},
      {.name = "empty", .numel = 6, .sizes = {0, 3}, .strides = {3, 1}},
      {.name = "repeated", .numel = 6, .offset = 1, .sizes = {4}, .strides = {0}}};
  for (const std::string& file : both(tensors, {{"0", bytes_of(kValues)}}, {6})) {
    const StateDict read = load(file);
    const double small = static_cast<double>(3e-40f);
    EXPECT_EQ(read.tensor("w", {2, 3}).to_vector(), (std::vector<double>{0.5, -1, 2, small, 4, 5}));
    EXPECT_EQ(read.tensor("transposed", {3, 2}).to_vector(), (std::vector<double>{0.5, small, -1, 4, 2, 5}));
    EXPECT_EQ(read.tensor("row", {3}).to_vector(), (std::vector<double>{small, 4, 5}));
    EXPECT_EQ(read.tensor("scalar", {}).item(), 5);
    EXPECT_EQ(read.tensor("empty", {0, 3}).numel(), 0);
    EXPECT_EQ(read.tensor("repeated", {4}).to_vector(), std::vector<double>(4, -1));
    EXPECT_EQ(read.names(),
              (std::vector<std::string>{"w", "transposed", "row", "scalar", "empty", "repeated"}));
  }
}

TEST_F(TorchFile, OldStoragesMayBePartsOfOthers) {
  SavedTensor part = kMatrix;
  part.sizes = {2}, part.strides = {1}, part.offset = 1, part.view = {2, 3};
  const StateDict read = load(old_torch_file(state_pickle({part}, true), {{"0", bytes_of(kValues)}}, {6}));
  EXPECT_EQ(read.tensor("w", {2}).to_vector(), (std::vector<double>{static_cast<double>(3e-40f), 4}));
}

TEST_F(TorchFile, StoragesThatAreNotAlignedAreCopied) {
  for (const std::size_t alignment : {1, 2, 3}) {
    const StateDict read =
        load(new_torch_file(state_pickle({kMatrix}), {{"0", bytes_of(kValues)}}, false, alignment));
    const Tensor& w = read.tensor("w", {2, 3});
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(w.raw_data()) % 4, 0u);
    EXPECT_EQ(w.to_vector()[5], 5);
  }
}

/// A dictionary with an epoch and these entries; each has weights of the entry's own name.
std::string checkpoint_of(const std::vector<std::string>& parts) {
  Pickle pickle;
  pickle.op("}(").text("epoch").integer(3).text("lr").op("G").op(std::string(8, '\0'));
  for (const std::string& part : parts) {
    SavedTensor own = kMatrix;
    own.name = part + "'s";
    pickle.text(part);
    test::push_state(pickle, {own});
  }
  return new_torch_file(pickle.text("note").text("w").op("u.").bytes, {{"0", bytes_of(kValues)}});
}

TEST_F(TorchFile, TheWeightsOfACheckpointAreTaken) {
  for (const char* part : {"state_dict", "model", "model_state_dict", "model_state", "net", "network", "ema",
                           "state_dict_ema", "model_ema", "params", "somebody's own"})
    EXPECT_EQ(load(checkpoint_of({part})).names(), std::vector<std::string>{std::string(part) + "'s"});
  // Of several the first in a fixed order, whatever the file's.
  test::write_file(path(), checkpoint_of({"model_ema", "net", "state_dict_ema", "optimizer", "model"}));
  WeightParts parts;
  EXPECT_EQ(torch_file::load(path(), &parts, false).names(), std::vector<std::string>{"model's"});
  EXPECT_EQ(parts.names, (std::vector<std::string>{"model", "net", "state_dict_ema", "model_ema"}));
  EXPECT_FALSE(parts.averaged);
  Pickle nested;  // and what is no dictionary of tensors is none of them
  nested.op("}(").text("state_dict").op("N").text("model").op("}").text("state_dict");
  test::push_state(nested, {kMatrix});
  nested.op("s").text("ema").op("}u.");
  test::write_file(path(), new_torch_file(nested.bytes, {{"0", bytes_of(kValues)}}));
  EXPECT_EQ(torch_file::load(path(), &parts).names(), std::vector<std::string>{"w"});
  EXPECT_EQ(parts.names, std::vector<std::string>{"model"});
  Pickle mixed;  // no such part: what is no tensor is left out
  mixed.op("}(").text("epoch").integer(3).text("w");
  push(mixed, kMatrix, false);
  test::write_file(path(), new_torch_file(mixed.op("u.").bytes, {{"0", bytes_of(kValues)}}));
  EXPECT_EQ(torch_file::load(path(), &parts).names(), std::vector<std::string>{"w"});
  EXPECT_TRUE(parts.names.empty());
}

TEST_F(TorchFile, ARunningAverageComesFirst) {
  WeightParts parts;
  const auto taken = [&](const std::vector<std::string>& keys, bool averages) {
    test::write_file(path(), checkpoint_of(keys));
    return torch_file::load(path(), &parts, averages).names()[0];
  };
  // As timm, torchvision's references and others save them; and under keys that nobody has used so far.
  for (const auto& [plain, average] : {std::pair{"state_dict", "state_dict_ema"},
                                       {"model", "model_ema"},
                                       {"net", "ema"},
                                       {"mine", "mine_ema"}}) {
    for (const std::vector<std::string>& keys : {Names{plain, average}, {average, plain}}) {
      EXPECT_EQ(taken(keys, true), fmt::format("{}'s", average));
      EXPECT_EQ(parts.names, (Names{average, plain}));
      EXPECT_TRUE(parts.averaged);
      EXPECT_EQ(taken(keys, false), fmt::format("{}'s", plain));
      EXPECT_EQ(parts.names, (Names{plain, average}));
      EXPECT_FALSE(parts.averaged);
    }
    EXPECT_EQ(taken({average}, false), fmt::format("{}'s", average)) << "there is no other";
    EXPECT_EQ(taken({plain}, true), fmt::format("{}'s", plain));
    EXPECT_FALSE(parts.averaged);
  }
}

TEST_F(TorchFile, LightningsCallbacksKeepAverages) {
  WeightParts parts;
  test::write_file(path(), checkpoint_of({"state_dict", "current_model_state"}));  // WeightAveraging
  EXPECT_EQ(torch_file::load(path(), &parts).names(), Names{"state_dict's"});
  EXPECT_TRUE(parts.averaged);
  EXPECT_EQ(torch_file::load(path(), &parts, false).names(), Names{"current_model_state's"});
  EXPECT_EQ(parts.names, (Names{"current_model_state", "state_dict"}));
  Pickle pickle;  // what a callback returned to be saved
  pickle.op("}(").text("callbacks").op("}(").text("ModelCheckpoint").op("}").text("EMA").op("}");
  pickle.text("state_dict_ema");
  test::push_state(pickle, {kMatrix});
  SavedTensor plain = kMatrix;
  plain.name = "plain";
  pickle.op("su").text("state_dict");
  test::push_state(pickle, {plain});
  test::write_file(path(), new_torch_file(pickle.op("u.").bytes, {{"0", bytes_of(kValues)}}));
  EXPECT_EQ(torch_file::load(path(), &parts).names(), Names{"w"});
  EXPECT_EQ(parts.names, (Names{"callbacks.EMA.state_dict_ema", "state_dict"}));
  EXPECT_EQ(torch_file::load(path(), nullptr, false).names(), Names{"plain"});
}

TEST(WeightParts, AveragesHaveAWordForIt) {
  for (const char* name : {"ema", "model_ema", "ema.module", "state_dict_ema", "swa_model", "averaged_model"})
    EXPECT_TRUE(names_average(name)) << name;
  for (const char* name : {"", "model", "schema", "emanet.x", "average-pool", "avgpool", "..", "_"})
    EXPECT_FALSE(names_average(name)) << name;
}

TEST_F(TorchFile, ParametersAndOtherProtocolsAreRead) {
  Pickle pickle;  // Python 2's way to write an OrderedDict, names as bytes, a parameter, protocol 4's names
  pickle.bytes = "\x80\x04\x95" + test::little(9999, 8);
  pickle
      .op("\x8c\x0b"
          "collections")
      .op("\x94\x8c\x0bOrderedDict\x94\x93\x94(](](U\x01wctorch._utils\n_rebuild_parameter\n(");
  push(pickle, kMatrix, false);
  pickle.op(
      "\x88"
      "ctorch\nSize\n)\x85RtRee");
  const StateDict read = load(new_torch_file(pickle.op("tR.").bytes, {{"0", bytes_of(kValues)}}));
  EXPECT_EQ(read.tensor("w", {2, 3}).to_vector()[4], 4);
}

/// Objects as Python's pickle writes them; `touch` would create a file.
std::vector<std::string> other_objects(const std::string& touch) {
  const auto called = [](const char* module, const char* name, const std::string& arguments) {
    return Pickle().global(module, name).op(arguments).bytes.substr(2);
  };
  const auto text = [](const std::string& value) { return Pickle().text(value).bytes.substr(2); };
  const std::string dtype =
      called("numpy", "dtype", text("f8") + "\x89\x88\x87R(K\x03" + text("<") + "NNNtb");
  const std::string bytes = called("_codecs", "encode", text("12345678") + text("latin1") + "\x86R");
  const std::string array = called("numpy.core.multiarray", "_reconstruct",
                                   called("numpy", "ndarray",
                                          "K\x01\x85"
                                          "C\x01"
                                          "b\x87R(K\x01K\x01\x85"));
  return {called("posix", "system", text(touch) + "\x85R"),
          called("builtins", "eval", text("1") + "\x85R"),
          text("os") + text("system") + "\x93" + text(touch) + "\x85R",
          called("argparse", "Namespace", ")\x81}" + text("lr") + "K\x01sb"),
          called("numpy.core.multiarray", "scalar", dtype + bytes + "\x86R"),
          array + dtype + "\x89" + bytes + "tb",
          called("collections", "defaultdict", called("builtins", "list", "\x85R") + text("x") + "]s"),
          called("torch", "device", text("cuda") + "K\x01\x86R"),
          called("torch", "float32", ""),
          called("torch", "Size", "K\x01\x85\x85R"),
          called("pathlib", "PosixPath", "(" + text("/") + text("data") + "tR"),
          called("datetime", "datetime",
                 "C\x0a"
                 "0123456789\x85R"),
          called("mine", "Colour", "K\x01\x85R"),
          called("functools", "partial",
                 called("builtins", "print", "\x85R(") + called("builtins", "print", ")}Ntb")),
          "(imine\nThing\n}b",
          "(" + called("mine", "Thing", "K\x01o"),
          called("mine", "Thing", ")}\x92"),
          called("mine", "List", ")\x81(K\x01K\x02e"),
          "\x8f(K\x01K\x02\x90",
          "(K\x01\x91",
          "\x96" + test::little(3, 8) + "abc"};
}

TEST_F(TorchFile, OtherObjectsAreSkippedAndNothingIsExecuted) {
  const std::filesystem::path touched = folder_ / "touched";
  for (const std::string& object : other_objects("touch " + touched.string())) {
    Pickle beside, within;
    beside.bytes[1] = within.bytes[1] = '\x05';
    beside.op("}(").text("args").op(object).text("state_dict");
    test::push_state(beside, {kMatrix});
    within.op("}(").text("args").op(object).text("w");
    push(within, kMatrix, false);
    for (Pickle* pickle : {&beside, &within})
      EXPECT_EQ(load(new_torch_file(pickle->op("u.").bytes, {{"0", bytes_of(kValues)}})).names(),
                std::vector<std::string>{"w"})
          << object;
  }
  EXPECT_FALSE(std::filesystem::exists(touched));
}

TEST_F(TorchFile, TensorsAreFoundInContainersOfAnyClass) {
  for (const char* made : {"cmine\nDict\n)\x81", "ccollections\ndefaultdict\ncbuiltins\nlist\n\x85R"}) {
    Pickle pickle;
    pickle.op("}")
        .text("net")
        .op(made)
        .op("(")
        .text("w")
        .global("torch._tensor", "_rebuild_from_type_v2")
        .op("(");
    pickle.global("torch._utils", "_rebuild_tensor_v2").global("mine", "Tensor").op("((").text("storage");
    pickle.global("torch", "FloatStorage").text("0").text("cpu").integer(6).op("tQ").integer(0).tuple({2, 3});
    pickle.tuple({3, 1}).op("\x89Nt}tRus.");
    EXPECT_EQ(
        load(new_torch_file(pickle.bytes, {{"0", bytes_of(kValues)}})).tensor("w", {2, 3}).to_vector()[4], 4);
  }
}

TEST_F(TorchFile, TensorsThatCannotBeReadAreNamedAmongTheWeightsOnly) {
  SavedTensor narrow = kMatrix;
  narrow.name = "narrow", narrow.type = "ShortStorage";
  Pickle beside;
  beside.op("}(").text("other");
  push(beside, narrow, false);
  beside.text("state_dict");
  test::push_state(beside, {kMatrix});
  EXPECT_EQ(load(new_torch_file(beside.op("u.").bytes, {{"0", bytes_of(kValues)}})).names(),
            std::vector<std::string>{"w"});
  EXPECT_TRUE(
      test::names(error_of(new_torch_file(state_pickle({kMatrix, narrow}), {{"0", bytes_of(kValues)}})),
                  {"'narrow'", "ShortStorage", "f64", "bf16", "bool"}));
  Pickle sparse;
  sparse.op("}").text("s").global("torch._utils", "_rebuild_sparse_tensor").op(")Rs.");
  EXPECT_TRUE(test::names(error_of(sparse), {"'s'", "_rebuild_sparse_tensor"}));
}

TEST_F(TorchFile, OldFilesNameTheStorageThatCannotBeRead) {
  SavedTensor narrow = kMatrix;
  narrow.name = "narrow", narrow.type = "ShortStorage", narrow.key = "1";
  const test::SavedStorages storages{{"0", bytes_of(kValues)}, {"1", std::string(12, '\0')}};
  EXPECT_TRUE(test::names(error_of(old_torch_file(state_pickle({kMatrix, narrow}, true), storages, {6, 6})),
                          {"'1'", "f64", "bf16", "bool"}));
}

TEST_F(TorchFile, WholeModelsAreNamed) {
  EXPECT_TRUE(test::names(error_of(Pickle().op("cmine\nNet\n)\x81}b.")), {"Net", "model.state_dict()"}));
  EXPECT_TRUE(test::names(error_of(Pickle().op("}").text("model").op("cmine\nNet\n)\x81s.")),
                          {"'model'", "Net", "model.state_dict()"}));
  Pickle tensor;
  push(tensor, kMatrix, false);
  EXPECT_TRUE(test::names(error_of(new_torch_file(tensor.op(".").bytes, {{"0", bytes_of(kValues)}})),
                          {"single tensor", "model.state_dict()"}));
  EXPECT_TRUE(test::names(error_of(Pickle().op("].")), {"list", "model.state_dict()"}));
}

TEST_F(TorchFile, OpcodesThatTorchDoesNotWriteAreRefused) {
  for (const char* opcode : {"\x82", "\x83", "\x84", "P", "\x97", "\x98", "\xff"}) {
    EXPECT_TRUE(test::names(error_of(Pickle().op(opcode).op("os\nsystem\n")),
                            {"66", fmt::format("0x{:02x}", static_cast<unsigned char>(opcode[0]))}));
  }
  for (const char* malformed : {"o.", "(o.", "iA\nB\n.", "NN\x81.", "N)\x92.", "(cA\nB\n\x85R.", "N)R.",
                                "\x90.", "cA\nB\n)\x81(N\x88Nu.", "b."})
    EXPECT_TRUE(test::names(error_of(Pickle().op(malformed)), {path().string(), "at byte"})) << malformed;
}

TEST_F(TorchFile, TensorsLieWithinTheirStorage) {
  constexpr std::int64_t kHuge = std::int64_t{1} << 62;
  const auto refused = [&](SavedTensor tensor, std::initializer_list<std::string_view> named) {
    for (const std::string& file : both({tensor}, {{"0", bytes_of(kValues)}}, {6})) {
      EXPECT_TRUE(test::names(error_of(file), named));
    }
  };
  const auto shaped = [](std::vector<std::int64_t> sizes, std::vector<std::int64_t> strides,
                         std::int64_t offset = 0) {
    SavedTensor tensor = kMatrix;
    tensor.sizes = std::move(sizes), tensor.strides = std::move(strides), tensor.offset = offset;
    return tensor;
  };
  refused(shaped({7}, {1}), {"[7]", "0", "6"});
  refused(shaped({2, 3}, {3, 1}, 1), {"[2, 3]", "1", "6"});
  refused(shaped({2}, {6}), {"[2]", "0", "6"});
  refused(shaped({1}, {1}, -1), {"[1]", "-1", "6"});
  refused(shaped({kHuge, kHuge}, {kHuge, kHuge}), {"[4611686018427387904, 4611686018427387904]", "0", "6"});
  refused(shaped({2}, {-1}, 3), {"sizes", "strides", "-1"});
  refused(shaped({2}, {1, 1}), {"rank", "1", "strides", "2"});
  refused(shaped(std::vector<std::int64_t>(9, 1), std::vector<std::int64_t>(9, 1)), {"rank", "8", "9"});
  for (const SavedTensor& tensor : {shaped({kHuge}, {0}), shaped({kHuge, kHuge, 0}, {1, 1, 1})}) {
    for (const std::string& file : both({tensor}, {{"0", bytes_of(kValues)}}, {6})) {
      EXPECT_TRUE(test::names(error_of(file), {std::to_string(file.size()), std::to_string(kHuge)}));
    }
  }
  SavedTensor larger = kMatrix;
  larger.numel = 7;
  refused(larger, {"'0'", "'w'", "7", "f32", "24"});
  larger.numel = -1;
  refused(larger, {"storage", "0", "-1"});
  SavedTensor lost = kMatrix;
  lost.key = "1";
  EXPECT_TRUE(test::names(error_of(new_torch_file(state_pickle({lost}), {{"0", bytes_of(kValues)}})),
                          {"storage", "'1'"}));
}

TEST_F(TorchFile, DamageIsNoticed) {
  const std::string file = new_torch_file(state_pickle({kMatrix}), {{"0", bytes_of(kValues)}});
  const std::size_t values = file.find(bytes_of(kValues));
  std::string damaged = file;
  damaged[values + 5] ^= 1;
  EXPECT_TRUE(test::names(error_of(damaged), {"CRC-32", std::to_string(values), "24"}));
  damaged = file;
  damaged[file.find("_rebuild_tensor")] ^= 1;
  EXPECT_TRUE(test::names(error_of(damaged), {"CRC-32", "64"}));
}

TEST_F(TorchFile, OtherFilesAreNamed) {
  EXPECT_TRUE(test::names(error_of(""), {"0", "torch.save()"}));
  EXPECT_TRUE(test::names(error_of("not a model"), {"0", "torch.save()"}));
  EXPECT_TRUE(test::names(error_of(test::zip_of({{"a.npy", "x"}})), {"zip", "torch.save()"}));
  EXPECT_TRUE(
      test::names(error_of(test::zip_of({{"a/data.pkl", "x"}, {"a/constants.pkl", "y"}})), {"TorchScript"}));
  EXPECT_TRUE(
      test::names(error_of(test::zip_of({{"a/data.pkl", "x"}, {"a/byteorder", "big"}})), {"big-endian"}));
  EXPECT_TRUE(test::names(error_of(Pickle().op("].").bytes), {"3", "pickle", "torch.save()"}));
  EXPECT_TRUE(test::names(error_of(Pickle().op("].")), {"67", "torch.save(model.state_dict(), path)"}));
  EXPECT_TRUE(test::names(error_of(Pickle().op("}.")), {"67", "tensor"}));
  EXPECT_ERROR(IoError, torch_file::load(folder_.path()), folder_.path().string(), "folder");
}

TEST_F(TorchFile, TruncatedOrForgedFilesOnlyThrow) {
  std::mt19937 random(5);
  std::int64_t accepted = 0, refused = 0;
  const auto attempt = [&](const std::string& bytes) {
    try {
      for (const StateDict::Entry& entry : load(bytes)) (void)std::get<Tensor>(entry.value).to_vector();
      ++accepted;
    } catch (const IoError& error) {
      EXPECT_EQ(std::string(error.what()).find('\n'), std::string::npos) << error.what();
      ++refused;
    }
  };
  const std::vector<SavedTensor> tensors = {kMatrix, {.name = "b", .numel = 6, .sizes = {3}, .strides = {2}}};
  for (const std::string& file : both(tensors, {{"0", bytes_of(kValues)}}, {6})) {
    for (std::size_t length = 0; length < file.size(); length += 7) {
      test::write_file(path(), file.substr(0, length));
      EXPECT_THROW((void)torch_file::load(path()), IoError) << length;
    }
    for (int i = 0; i < 200; ++i) {
      std::string changed = file;
      for (int j = 0; j <= i % 3; ++j) changed[random() % changed.size()] = static_cast<char>(random());
      attempt(changed);
    }
  }
  // Without the CRC in front of it, the pickle itself is what is changed.
  const std::string pickle = state_pickle(tensors);
  for (int i = 0; i < 600; ++i) {
    std::string changed = pickle;
    changed[random() % changed.size()] = static_cast<char>(random());
    attempt(new_torch_file(changed, {{"0", bytes_of(kValues)}}));
  }
  EXPECT_GT(accepted, 20);
  EXPECT_GT(refused, 400);
}

TEST_F(TorchFile, SmallPicklesDoNotGrow) {
  // A list of pairs that is made a dictionary again and again, from the memo.
  Pickle grows;
  grows.global("collections", "OrderedDict").op("q\x01](");
  for (int i = 0; i < 2000; ++i) grows.op("NN\x86");
  grows.op(
      "e\x85q\x02"
      "0"
      "0");
  for (int i = 0; i < 100'000; ++i) grows.op("h\x01h\x02R");
  EXPECT_TRUE(test::names(error_of(grows.op(".")), {"opcodes", "2097152"}));
  Pickle shared;  // many dictionaries around a large one
  shared.op("}q\x01(");
  for (int i = 0; i < 100'000; ++i) shared.op("NN");
  shared.op("u0}(");
  for (std::uint64_t i = 0; i < 100'000; ++i)
    shared.op("X" + test::little(4, 4) + test::little(0x21212121 + i, 4) + "}").text("net").op("h\x01s");
  EXPECT_TRUE(test::names(error_of(shared.op("u.")), {"tensor"}));
  std::string nested(3'000'000, ']');
  EXPECT_TRUE(test::names(error_of(Pickle().op(nested)), {"opcodes", "2097152"}));
  // Lengths that the file does not have.
  for (const char* opcode : {"X\xff\xff\xff\x7f", "T\xff\xff\xff\x7f", "\x8b\xff\xff\xff\x7f"})
    EXPECT_TRUE(test::names(error_of(Pickle().op(opcode)), {"66", "2147483647", "0"}));
  EXPECT_TRUE(test::names(error_of(Pickle().op("\x8d\xff\xff\xff\xff\xff\xff\xff\x7f")),
                          {"66", "9223372036854775807", "0"}));
}

}  // namespace athanor::torch_file_test
