#include "data/sample_store.h"

namespace athanor {

const char* name_of(Codec codec) {
  switch (codec) {
    case Codec::raw: return "raw";
    case Codec::jpeg: return "jpeg";
    case Codec::png: return "png";
  }
  return "unknown";
}

}  // namespace athanor
