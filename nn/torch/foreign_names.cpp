#include "nn/torch/foreign_names.h"

#include <algorithm>
#include <cctype>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "autograd/shape.h"
#include "tensor/base/error.h"

namespace athanor::nn {
namespace {

/// A name, or its beginning up to a dot, and our replacement. '#' is a number; the first is {a}, the second
/// {b}. {even} and {odd} are 2 a and 2 a + 1, {before} is b - 1; {flat} counts blocks over all stages, from
/// 1; {last} follows the last block or stage.
struct Rule {
  std::string_view theirs, ours;
};

constexpr Rule kVgg[] = {
    {"pre_logits.fc1", "classifier.0"}, {"pre_logits.fc2", "classifier.3"}, {"head.fc", "classifier.6"}};

constexpr Rule kConvNext[] = {{"stem.0", "features.0.0"},
                              {"stem.1", "features.0.1"},
                              {"stages.#.downsample.#", "features.{even}.{b}"},
                              {"stages.#.blocks.#.conv_dw", "features.{odd}.{b}.block.0"},
                              {"stages.#.blocks.#.norm", "features.{odd}.{b}.block.2"},
                              {"stages.#.blocks.#.mlp.fc1", "features.{odd}.{b}.block.3"},
                              {"stages.#.blocks.#.mlp.fc2", "features.{odd}.{b}.block.5"},
                              {"stages.#.blocks.#.gamma", "features.{odd}.{b}.layer_scale"},
                              {"head.norm", "classifier.0"},
                              {"head.fc", "classifier.2"}};

constexpr Rule kVit[] = {
    {"cls_token", "class_token"},
    {"pos_embed", "encoder.pos_embedding"},
    {"patch_embed.proj", "conv_proj"},
    {"blocks.#.norm1", "encoder.layers.encoder_layer_{a}.ln_1"},
    {"blocks.#.attn.qkv.weight", "encoder.layers.encoder_layer_{a}.self_attention.in_proj_weight"},
    {"blocks.#.attn.qkv.bias", "encoder.layers.encoder_layer_{a}.self_attention.in_proj_bias"},
    {"blocks.#.attn.proj", "encoder.layers.encoder_layer_{a}.self_attention.out_proj"},
    {"blocks.#.norm2", "encoder.layers.encoder_layer_{a}.ln_2"},
    {"blocks.#.mlp.fc1", "encoder.layers.encoder_layer_{a}.mlp.0"},
    {"blocks.#.mlp.fc2", "encoder.layers.encoder_layer_{a}.mlp.3"},
    {"norm", "encoder.ln"},
    {"head", "heads.head"}};

constexpr Rule kRegNet[] = {{"stem.conv", "stem.0"},
                            {"stem.bn", "stem.1"},
                            {"s#.b#.conv1.conv", "trunk_output.block{a}.block{a}-{before}.f.a.0"},
                            {"s#.b#.conv1.bn", "trunk_output.block{a}.block{a}-{before}.f.a.1"},
                            {"s#.b#.conv2.conv", "trunk_output.block{a}.block{a}-{before}.f.b.0"},
                            {"s#.b#.conv2.bn", "trunk_output.block{a}.block{a}-{before}.f.b.1"},
                            {"s#.b#.se", "trunk_output.block{a}.block{a}-{before}.f.se"},
                            {"s#.b#.conv3.conv", "trunk_output.block{a}.block{a}-{before}.f.c.0"},
                            {"s#.b#.conv3.bn", "trunk_output.block{a}.block{a}-{before}.f.c.1"},
                            {"s#.b#.downsample.conv", "trunk_output.block{a}.block{a}-{before}.proj.0"},
                            {"s#.b#.downsample.bn", "trunk_output.block{a}.block{a}-{before}.proj.1"},
                            {"head.fc", "fc"}};

// As the files of torchvision have them, and its networks no longer.
constexpr Rule kOldDenseNet[] = {
    {"features.denseblock#.denselayer#.norm.1", "features.denseblock{a}.denselayer{b}.norm1"},
    {"features.denseblock#.denselayer#.conv.1", "features.denseblock{a}.denselayer{b}.conv1"},
    {"features.denseblock#.denselayer#.norm.2", "features.denseblock{a}.denselayer{b}.norm2"},
    {"features.denseblock#.denselayer#.conv.2", "features.denseblock{a}.denselayer{b}.conv2"}};

// The layers around the blocks of MobileNets and EfficientNet.
constexpr Rule kMobileNetV2[] = {{"conv_stem", "features.0.0"},          {"bn1", "features.0.1"},
                                 {"blocks.#.#", "features.{flat}.conv"}, {"conv_head", "features.{last}.0"},
                                 {"bn2", "features.{last}.1"},           {"classifier", "classifier.1"}};
constexpr Rule kMobileNetV3[] = {
    {"conv_stem", "features.0.0"},
    {"bn1", "features.0.1"},
    {"blocks.#.#.conv", "features.{flat}.0"},  // a last one that is not a block in our network
    {"blocks.#.#", "features.{flat}.block"},
    {"conv_head", "classifier.0"},
    {"classifier", "classifier.3"}};
constexpr Rule kEfficientNet[] = {{"conv_stem", "features.0.0"},
                                  {"bn1", "features.0.1"},
                                  {"blocks.#.#", "features.{next}.{b}.block"},
                                  {"conv_head", "features.{last}.0"},
                                  {"bn2", "features.{last}.1"},
                                  {"classifier", "classifier.1"}};

// Inside a block: with or without an expanding convolution before the depthwise one. {p} is the projection:
// after the squeeze-and-excitation, if any.
constexpr Rule kWide[] = {{"conv_pw", "0.0"},          {"bn1", "0.1"},
                          {"conv_dw", "1.0"},          {"bn2", "1.1"},
                          {"se.conv_reduce", "2.fc1"}, {"se.conv_expand", "2.fc2"},
                          {"conv_pwl", "{p}.0"},       {"bn3", "{p}.1"}};
constexpr Rule kNarrow[] = {{"conv_dw", "0.0"},          {"bn1", "0.1"},       {"se.conv_reduce", "1.fc1"},
                            {"se.conv_expand", "1.fc2"}, {"conv_pw", "{p}.0"}, {"bn2", "{p}.1"}};
// In MobileNetV2, the projection and its norm are directly in the block.
constexpr Rule kWideV2[] = {{"conv_pwl", "2"}, {"bn3", "3"}};
constexpr Rule kNarrowV2[] = {{"conv_pw", "1"}, {"bn2", "2"}};

/// A match of a name: its length, and its numbers.
struct Match {
  std::size_t length = 0;
  std::int64_t a = 0, b = 0;
};

std::optional<Match> match(std::string_view rule, std::string_view name) {
  Match match;
  int numbers = 0;
  for (const char expected : rule) {
    if (match.length == name.size()) return {};
    if (expected != '#') {
      if (name[match.length++] != expected) return {};
      continue;
    }
    std::int64_t number = 0;
    const std::size_t begin = match.length;
    for (; match.length < name.size() && std::isdigit(static_cast<unsigned char>(name[match.length])) != 0 &&
           match.length < begin + 4;
         ++match.length)
      number = 10 * number + (name[match.length] - '0');
    if (match.length == begin) return {};
    (numbers++ == 0 ? match.a : match.b) = number;
  }
  if (match.length < name.size() && name[match.length] != '.') return {};
  return match;
}

/// Renames a state by the rules of its family.
class Renaming {
 public:
  Renaming(std::span<const Rule> rules, const StateDict& state) : rules_(rules), state_(state) {
    for (const StateDict::Entry& entry : state) {
      if (const auto at = match("blocks.#.#", entry.name)) blocks_[{at->a, at->b}] = 0;
    }
    std::int64_t next = 1;
    for (auto& [block, flat] : blocks_) flat = next++;
    last_ = rules.data() == kEfficientNet && !blocks_.empty() ? blocks_.rbegin()->first.first + 2 : next;
  }

  std::string operator()(const std::string& name) const {
    for (const Rule& rule : rules_) {
      const auto found = match(rule.theirs, name);
      if (!found) continue;
      const auto flat = blocks_.find({found->a, found->b});
      const std::string place =
          fmt::format(fmt::runtime(rule.ours), fmt::arg("a", found->a), fmt::arg("b", found->b),
                      fmt::arg("next", found->a + 1), fmt::arg("before", found->b - 1),
                      fmt::arg("even", 2 * found->a), fmt::arg("odd", 2 * found->a + 1),
                      fmt::arg("flat", flat == blocks_.end() ? 0 : flat->second), fmt::arg("last", last_));
      const std::string rest = name.substr(found->length);
      return rule.theirs == "blocks.#.#" ? in_block(name.substr(0, found->length), place, rest)
                                         : place + rest;
    }
    return name;
  }

 private:
  std::string in_block(const std::string& block, const std::string& place, const std::string& rest) const {
    const auto has = [&](const char* layer) {
      return state_.contains(fmt::format("{}.{}.weight", block, layer));
    };
    if (has("conv"))  // not a block in our network: its norm
      return place.substr(0, place.rfind('.')) + (rest.starts_with(".bn1") ? ".1" + rest.substr(4) : rest);
    if (rest.size() < 2) return block + rest;
    const bool wide = has("conv_pwl"), is_v2 = rules_.data() == kMobileNetV2;
    const int projection = (wide ? 2 : 1) + (has("se.conv_reduce") ? 1 : 0);
    const std::span<const Rule> first = !is_v2 ? std::span<const Rule>()
                                        : wide ? std::span<const Rule>(kWideV2)
                                               : kNarrowV2;
    for (const std::span<const Rule> rules : {first, wide ? std::span<const Rule>(kWide) : kNarrow}) {
      for (const Rule& rule : rules) {
        if (const auto found = match(rule.theirs, std::string_view(rest).substr(1)))
          return fmt::format("{}.{}{}", place,
                             fmt::format(fmt::runtime(rule.ours), fmt::arg("p", projection)),
                             rest.substr(1 + found->length));
      }
    }
    return block + rest;
  }

  std::span<const Rule> rules_;
  const StateDict& state_;
  std::map<std::pair<std::int64_t, std::int64_t>, std::int64_t>
      blocks_;  // stage and block to the index among all blocks
  std::int64_t last_ = 0;
};

// Names that only others have, one for each family.
constexpr std::string_view kStem = "conv_stem.weight", kStages = "stages.0.blocks.0.conv_dw.weight",
                           kPatches = "patch_embed.proj.weight", kVggHead = "pre_logits.fc1.weight",
                           kFirstBlock = "s1.b1.conv1.conv.weight",
                           kFirstNorm = "features.denseblock1.denselayer1.norm.1.weight";

/// The rules of the family with such names; empty if they are torchvision's.
std::span<const Rule> rules_of(const StateDict& ours, const StateDict& theirs) {
  if (theirs.contains(kStem)) {
    if (ours.contains_prefix("features.1.conv.")) return kMobileNetV2;
    return ours.contains("classifier.3.weight") ? std::span<const Rule>(kMobileNetV3) : kEfficientNet;
  }
  if (theirs.contains(kStages)) return kConvNext;
  if (theirs.contains(kPatches)) return kVit;
  if (theirs.contains(kVggHead)) return kVgg;
  if (theirs.contains(kFirstBlock)) return kRegNet;
  if (theirs.contains(kFirstNorm)) return kOldDenseNet;
  return {};
}

using Prefixes = std::set<std::string, std::less<>>;
constexpr int kDeepest = 16;  // a hostile name may have millions of dots

/// The shortest of `prefixes`, each empty or ending in a dot, that a name begins with and does not end with.
/// Prefixes of more dots than kDeepest are not found.
std::optional<std::string_view> shortest_prefix(const Prefixes& prefixes, std::string_view name) {
  std::size_t length = 0;
  for (int depth = 0; depth <= kDeepest && length < name.size(); ++depth) {
    const auto found = prefixes.find(name.substr(0, length));
    if (found != prefixes.end()) return *found;
    length = std::min(name.find('.', length), name.size()) + 1;
  }
  return {};
}

/// The prefixes in `state` below which there is a network such as `model`, known by its first parameter. One
/// within another is none.
Prefixes prefixes_of_networks(const Module& model, const StateDict& state) {
  const std::vector<Parameter> parameters = model.parameters();
  if (parameters.empty()) return {};
  Prefixes prefixes;
  for (const std::string_view first :
       {std::string_view(parameters.front().name), kStem, kStages, kPatches, kVggHead, kFirstBlock}) {
    for (const StateDict::Entry& entry : state) {
      const std::string_view name = entry.name;
      if (!name.ends_with(first)) continue;
      const std::string_view prefix = name.substr(0, name.size() - first.size());
      if (!prefix.empty() && prefix.back() != '.') continue;
      if (std::count(prefix.begin(), prefix.end(), '.') <= kDeepest) prefixes.emplace(prefix);
    }
  }
  Prefixes outermost;
  for (const std::string& prefix : prefixes)
    if (!shortest_prefix(prefixes, prefix)) outermost.insert(prefix);
  return outermost;
}

/// The same values in the shape of `like`, if the numbers of elements match.
Tensor in_shape_of(const Tensor& like, const Tensor& x) {
  if (x.rank() == like.rank() || x.numel() != like.numel()) return x;
  return reshape(x.detach(), like.shape());
}

/// The first part of a name, with its dot, if a wrapper has put it before all names of a state: the model has
/// none like it. Or empty.
std::string wrapper_of(const StateDict& ours, const StateDict& state) {
  if (state.empty()) return {};
  const std::string& first = state.begin()->name;
  const std::string prefix = first.substr(0, first.find('.') + 1);
  const bool shared = std::all_of(state.begin(), state.end(), [&](const StateDict::Entry& entry) {
    return entry.name.size() > prefix.size() && entry.name.starts_with(prefix);
  });
  return shared && !ours.contains_prefix(prefix) ? prefix : std::string();
}

/// Without the number of updates that PyTorch's AveragedModel keeps beside the weights.
StateDict without_count(const StateDict& state) {
  StateDict weights;
  for (const StateDict::Entry& entry : state)
    if (entry.name != "n_averaged") weights.set(entry.name, entry.value);
  return weights;
}

}  // namespace

StateDict network_within(const Module& model, const StateDict& state, bool averages, WeightParts& parts) {
  const Prefixes networks = prefixes_of_networks(model, state);
  if (networks.empty() || networks.contains("")) return state;
  std::vector<std::string> found;  // in the order of the state, the networks or first words of what is none
  Prefixes seen;
  for (const StateDict::Entry& entry : state) {
    const auto network = shortest_prefix(networks, entry.name);
    const std::string prefix(network ? *network : entry.name.substr(0, entry.name.find('.') + 1));
    if (entry.name.ends_with("n_averaged") || !seen.insert(prefix.empty() ? entry.name : prefix).second)
      continue;
    found.push_back(prefix.empty() ? entry.name : prefix);
  }
  const auto rank = [&](const std::string& prefix) {
    return !networks.contains(prefix) ? 2 : names_average(prefix) == averages ? 0 : 1;
  };
  std::stable_sort(found.begin(), found.end(),
                   [&](const std::string& a, const std::string& b) { return rank(a) < rank(b); });
  parts = {.names = {}, .averaged = names_average(found.front())};
  for (const std::string& prefix : found.size() > 1 ? found : std::vector<std::string>())
    parts.names.push_back(prefix.ends_with('.') ? prefix.substr(0, prefix.size() - 1) : prefix);
  return state.under(found.front());
}

StateDict with_our_names(const Module& model, const StateDict& given) {
  const StateDict ours = model.state_dict();
  StateDict state = without_count(given);
  for (std::string prefix; !(prefix = wrapper_of(ours, state)).empty();) state = state.under(prefix);
  const std::span<const Rule> rules = rules_of(ours, state);
  if (rules.empty()) return state;
  const Renaming renamed(rules, state);
  StateDict result;
  for (const StateDict::Entry& entry : state) {
    const std::string name = renamed(entry.name);
    ATH_CHECK(!result.contains(name),
              "names: each name must map to its own entry, but '{}' maps to '{}', which is taken", entry.name,
              name);
    const Tensor* tensor = std::get_if<Tensor>(&entry.value);
    const StateDict::Value* own = ours.find(name);
    const Tensor* like = own ? std::get_if<Tensor>(own) : nullptr;
    if (tensor && like)
      result.set(name, in_shape_of(*like, *tensor));
    else
      result.set(name, entry.value);
  }
  return result;
}

}  // namespace athanor::nn
