import java.lang.reflect.Method;
import java.lang.reflect.Modifier;
import java.util.Set;
import java.util.TreeSet;

/** Prints "CLASS KEY" of each key that RocketMQ's MixAll.properties2Object would set in the classes given. */
public class RocketMQKeys {
    static final Set<String> TYPES = Set.of("int", "long", "double", "float", "boolean", "String");

    public static void main(String[] classes) throws Exception {
        for (String name : classes) {
            Class<?> config = Class.forName(name, false, RocketMQKeys.class.getClassLoader());
            Set<String> keys = new TreeSet<>();
            for (Method method : config.getMethods()) {
                String setter = method.getName();
                if (setter.startsWith("set") && setter.length() > 3 && method.getParameterCount() == 1
                        && !Modifier.isStatic(method.getModifiers())
                        && TYPES.contains(method.getParameterTypes()[0].getSimpleName())) {
                    keys.add(setter.substring(3, 4).toLowerCase() + setter.substring(4));
                }
            }
            for (String key : keys) {
                System.out.println(config.getSimpleName() + " " + key);
            }
        }
    }
}
