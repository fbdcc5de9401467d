package dev.leman;

import dev.leman.v1.JsonArrowDataType;
import dev.leman.v1.JsonArrowField;
import org.apache.arrow.vector.types.pojo.ArrowType;
import org.apache.arrow.vector.types.pojo.Field;

/** Encodes types to which a column can be converted. */
final class ColumnType {
  private ColumnType() {}

  /**
   * Return the type of a field, as requests have it.
   *
   * @throws LemanException INVALID_ARGUMENT if no column can be converted to it
   */
  static JsonArrowDataType told(Field field) {
    JsonArrowDataType.Builder told = JsonArrowDataType.newBuilder().setType(name(field));
    for (Field values : field.getChildren()) {
      told.addFields(
          JsonArrowField.newBuilder()
              .setName(values.getName())
              .setType(told(values))
              .setNullable(values.isNullable()));
    }
    return told.build();
  }

  private static String name(Field field) {
    ArrowType type = field.getType();
    if (type instanceof ArrowType.Int number) {
      return (number.getIsSigned() ? "int" : "uint") + number.getBitWidth();
    }
    if (type instanceof ArrowType.FloatingPoint number) {
      return switch (number.getPrecision()) {
        case HALF -> "float16";
        case SINGLE -> "float32";
        case DOUBLE -> "float64";
      };
    }
    return switch (type.getTypeID()) {
      case Utf8 -> "utf8";
      case LargeUtf8 -> "large_utf8";
      case Binary -> "binary";
      case LargeBinary -> "large_binary";
      case List -> "list";
      case LargeList -> "large_list";
      default ->
          throw Addresses.refused(
              "type",
              "no column becomes "
                  + type
                  + ": integers and floats become other ones, and text, bytes and lists their"
                  + " large forms; add a column of that type instead",
              null);
    };
  }
}
